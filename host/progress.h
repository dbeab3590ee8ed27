/* Tells a person who waits at a terminal what a command is doing, once that takes longer than a
 * second: a line on stderr that counts seconds and goes when it is over. Where stderr is no
 * terminal nothing is said. By SIGALRM, so that it works whatever the command is blocked in. */
#ifndef TOLLGATE_PROGRESS_H
#define TOLLGATE_PROGRESS_H

/* `what` is kept: it must stay. */
void progress_begin(const char *what);
void progress_end(void);

#endif
