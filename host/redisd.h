/* The private Redis: a redis-server of our own on a Unix socket in the run directory, with its
 * append-only file in the data directory. Started, restarted when it dies, and stopped last. It
 * dies with us (PR_SET_PDEATHSIG), and the data directory's lock is a descriptor that it inherits,
 * so two never share one directory. */
#ifndef TOLLGATE_REDISD_H
#define TOLLGATE_REDISD_H

#include "loop.h"

struct redisd;

/* Starts it. NULL and a sentence in `why` where that cannot work. The socket's path is
 * redisd_socket. */
struct redisd *redisd_start(struct loop *l, const char *data_dir, const char *run_dir, char *why,
                            size_t size);
/* One that this process started before it became another program. */
struct redisd *redisd_adopt(struct loop *l, const char *data_dir, const char *run_dir, int pid,
                            int lock);
int redisd_pid(const struct redisd *r);
int redisd_lock(const struct redisd *r);
const char *redisd_socket(const struct redisd *r);
/* Asks it to end; on_stopped is called once when it has (it is killed after 10 s). */
void redisd_stop(struct redisd *r, void (*on_stopped)(void *arg), void *arg);
/* Ends it and waits for that, blocking, for those who end without their loop. */
void redisd_end(struct redisd *r);
void redisd_free(struct redisd *r);

#endif
