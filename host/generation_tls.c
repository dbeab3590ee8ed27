/* See generation_read.h: TLS with servers, targets and Redis. Files come from the snapshot, so that
 * a configuration with one that cannot be used is refused, and a change of one is a reload. */
#include "generation_read.h"
#include "tls_client.h"

int generation_read_tls(struct generation *g, bool http, struct tls_remote *out, struct buf *faults)
{
    struct tls_pem_fault f;
    *out = (struct tls_remote){ .context = NULL };
    if (!generation_get_bool(g, "tls"))
        return 0;
    generation_enter(g, "tls");
    const char *path = generation_get_text(g, "path"),
               *name = generation_get_text(g, "server_name");
    struct tls_client c = { .ca = generation_get_text(g, "ca"),
                            .cert = generation_get_text(g, "cert"),
                            .key = generation_get_text(g, "key"),
                            .insecure = generation_get_bool(g, "insecure"),
                            .http = http };
    generation_leave(g);
    out->context = tls_client_load(&c, g->snapshot, &f);
    if (name != NULL)
        out->name = slice_of(name);
    if (out->context != NULL)
        return 0;
    buf_printf(faults, "%s.%s: %s\n", path, f.key, f.text);
    return -1;
}
