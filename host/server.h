/* Listening sockets and the connections that came from them. */
#ifndef TOLLGATE_SERVER_H
#define TOLLGATE_SERVER_H

#include "conn.h"

struct server;
struct listener;

/* `generation` gives the current one for each new request. */
struct server *server_new(struct services *sv, struct generation *(*generation)(void *arg),
                          void *arg);
/* A listener over a descriptor that is bound and outlives the server, of the address of that number
 * in the configuration. At most `limit` connections at a time; further ones wait to be accepted. It
 * accepts between start and stop. A socket may be accepted on by several processes. */
struct listener *server_listener(struct server *s, int fd, unsigned address, uint32_t limit);
int server_accept_start(struct listener *ln);
void server_accept_stop(struct listener *ln);
/* Stops listening; idle connections end, busy ones behind their answer. on_empty is called once,
 * when none is left. */
void server_drain(struct server *s, void (*on_empty)(void *arg), void *arg);
/* Ends what is left at once. */
void server_abort(struct server *s);
/* Ends the connections whose request runs on g at once. */
void server_abort_generation(struct server *s, const struct generation *g);
uint32_t server_connections(const struct server *s);
/* Only when nothing is left. */
void server_free(struct server *s);

#endif
