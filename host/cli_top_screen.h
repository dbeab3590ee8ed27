/* The terminal as `tollgate top` has it: an alternate screen, without echo and line editing, and
 * signals that come as events.
 *
 * Whatever ends the program, the terminal is as it was: a signal is heard between two pieces of
 * output, the screen left, and the signal raised anew; a defect of our own leaves it as well. */
#ifndef TOLLGATE_CLI_TOP_SCREEN_H
#define TOLLGATE_CLI_TOP_SCREEN_H

#include <stdbool.h>

#include "slice.h"

/* 0, or a negative UV_E*. stdin and stdout are terminals. */
int screen_open(void);
/* Once it is open; again is fine. */
void screen_close(void);
/* To be polled: there are signals to take. */
int screen_signals(void);
/* Takes them. Ends the process on those that end it; stops it on SIGTSTP, and comes back with
 * the screen open again. True where all has to be drawn anew. */
bool screen_take_signals(void);
/* Draws lines from the top left on; gives up where a signal comes. False: the terminal has gone. */
bool screen_draw(struct slice lines);

#endif
