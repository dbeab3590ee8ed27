/* Unix sockets to listen on, by path. A file that nobody answers on is a dead program's, and is
 * replaced; one on which somebody answers, or that is no socket, is left alone. */
#ifndef TOLLGATE_LOCAL_H
#define TOLLGATE_LOCAL_H

/* A descriptor (close-on-exec, not blocking) or a negative UV_E*: UV_EADDRINUSE where somebody
 * answers, UV_EEXIST where the file is something else. The mode is the file's from the first
 * moment. */
int local_listen(const char *path, unsigned mode, int backlog);
/* Takes the file away once its socket has been shut down, unless somebody else has it by now. */
void local_unlink(const char *path);

#endif
