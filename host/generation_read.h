/* From the resolved configuration, a Lua table, to the structs that requests are served by. Private
 * to generation.c. */
#ifndef TOLLGATE_GENERATION_READ_H
#define TOLLGATE_GENERATION_READ_H

#include "generation.h"

/* Reads registry["tollgate.config"] into g. 0, or -1 with faults. */
int generation_read(struct generation *g, bool check_only, struct buf *faults);
/* generation_access.c: reads `access` of the table on top of the stack into s. Likewise. */
int generation_read_access(struct generation *g, struct settings *s, struct buf *faults);
/* Gives back what a route holds outside the arena. */
void generation_read_undo(struct generation *g, struct route *r);

/* generation_target.c: a route's targets. The route's table is on top of the stack. */
int generation_read_targets(struct generation *g, struct route *r, bool check_only,
                            struct buf *faults);
void generation_undo_targets(struct generation *g, struct route *r);
/* generation_check.c: the member `health` of the target's table on top of the stack; NULL where
 * there is none. `tls` is the target's. 0, or -1 with a fault. */
int generation_read_check(struct generation *g, const struct tls_remote *tls,
                          const struct target_check **out, struct buf *faults);
void generation_undo_check(const struct target_check *c);
/* Text that differs where the check does. */
void generation_describe_check(const struct target_check *c, struct buf *out);

/* generation_listen.c: the addresses, with TLS contexts where they have TLS. The configuration's
 * table is on top of the stack. */
int generation_read_listen(struct generation *g, struct buf *faults);
/* Warns where the connections do not fit the descriptors that a worker may have. */
void generation_warn_connections(struct generation *g);
void generation_undo_listen(struct generation *g);
/* generation_tls.c: the member `tls` of the table on top of the stack: a context, whose reference
 * is the caller's, and a name; none where it is absent. 0, or -1 with a fault. */
int generation_read_tls(struct generation *g, bool http, struct tls_remote *out,
                        struct buf *faults);

/* Members of the table on top of the stack, copied into the arena. */
const char *generation_get_text(struct generation *g, const char *name); /* NULL: absent */
uint64_t generation_get_number(struct generation *g, const char *name);
bool generation_get_bool(struct generation *g, const char *name);
/* A list of texts. */
const char **generation_get_texts(struct generation *g, const char *name, uint32_t *n);
/* A list of {name=, value=}; a value that is no string is a NULL slice. */
struct header *generation_get_headers(struct generation *g, const char *name, uint32_t *n);
/* Pushes a member that is a table, until generation_leave. Returns its length. */
uint32_t generation_enter(struct generation *g, const char *name);
void generation_leave(struct generation *g);

/* generation_network.c */
void generation_read_network(struct generation *g);

#endif
