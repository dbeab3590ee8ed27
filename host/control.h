/* Messages between master and worker: one line of text each, with at most one descriptor, over a
 * SOCK_SEQPACKET pair, so that message ends are kept and the death of one side is an end of file
 * for the other. */
#ifndef TOLLGATE_CONTROL_H
#define TOLLGATE_CONTROL_H

#include "loop.h"
#include "slice.h"

enum { CONTROL_MAX = 65536 }; /* bytes of a message; longer text is cut */

struct control;

struct control_events {
    /* fd is -1, or a descriptor that the callee now owns. text is borrowed. */
    void (*on_message)(void *arg, struct slice text, int fd);
    /* The other side is gone. Called once; control_free is still to be called. */
    void (*on_end)(void *arg);
};

/* A pair of descriptors: [0] for us (close-on-exec), [1] to be inherited. 0, or a negative UV_E*.
 */
int control_pair(int fd[2]);
/* Takes the descriptor. */
struct control *control_new(struct loop *l, int fd, const struct control_events *events, void *arg);
/* fd is -1 or is sent along (and stays ours). A message that the other side does not take is an
 * end: it is stuck. */
void control_send(struct control *c, int fd, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
int control_fd(const struct control *c);
void control_free(struct control *c);

#endif
