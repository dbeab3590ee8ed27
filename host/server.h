/* Listening sockets and the connections that came from them. */
#ifndef TOLLGATE_SERVER_H
#define TOLLGATE_SERVER_H

#include "conn.h"

struct server;

/* `generation` gives the current one for each new request. */
struct server *server_new(struct services *sv, struct generation *(*generation)(void *arg), void *arg);
/* Listens on host:port (port 0: a free one); requests start with `begin`. Returns the port, or a negative UV_E*. At most
 * `limit` connections at a time; further ones wait to be accepted. */
int server_listen(struct server *s, const char *host, int port, uint32_t limit, void (*begin)(struct exchange *x));
/* Stops listening; idle connections end, busy ones behind their answer. on_empty is called once, when none is left. */
void server_drain(struct server *s, void (*on_empty)(void *arg), void *arg);
/* Ends what is left at once. */
void server_abort(struct server *s);
uint32_t server_connections(const struct server *s);
/* Only when nothing is left. */
void server_free(struct server *s);

#endif
