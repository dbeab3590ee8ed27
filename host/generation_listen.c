/* See generation_read.h: the addresses that are listened on. */
#include "descriptors.h"
#include "generation_read.h"
#include "tls_config.h"

static void read_certificates(struct generation *g, struct tls_config *c)
{
    c->ncertificates = generation_enter(g, "certificates");
    c->certificates = arena_zalloc(&g->arena, c->ncertificates * sizeof *c->certificates);
    for (uint32_t i = 0; i < c->ncertificates; i++) {
        struct tls_config_certificate *one = &c->certificates[i];
        lua_rawgeti(g->L, -1, (int)i + 1);
        one->path = generation_get_text(g, "path");
        one->cert = generation_get_text(g, "cert");
        one->key = generation_get_text(g, "key");
        one->names = generation_get_texts(g, "names", &one->nnames);
        lua_pop(g->L, 1);
    }
    generation_leave(g);
}

static const struct tls_config *read_config(struct generation *g)
{
    struct tls_config *c = arena_zalloc(&g->arena, sizeof *c);
    c->path = generation_get_text(g, "path");
    c->min_version = generation_get_text(g, "min_version");
    c->ciphers = generation_get_texts(g, "ciphers", &c->nciphers);
    c->tickets = generation_get_bool(g, "tickets");
    c->ticket_keys = generation_get_text(g, "ticket_keys");
    read_certificates(g, c);
    if (generation_get_bool(g, "client")) {
        generation_enter(g, "client");
        c->ca = generation_get_text(g, "ca");
        c->required = generation_get_bool(g, "required");
        generation_leave(g);
    }
    return c;
}

/* The entry is on top of the stack. */
static int read_address(struct generation *g, struct listen_address *a, struct buf *faults)
{
    *a = (struct listen_address){ .host = generation_get_text(g, "host"),
                                  .port = (int)generation_get_number(g, "port") };
    if (!generation_get_bool(g, "tls"))
        return 0;
    generation_enter(g, "tls");
    a->tls_config = read_config(g);
    generation_leave(g);
    a->tls = tls_config_load(a->tls_config, g->snapshot, g->sv->tickets, faults, &g->warnings);
    return a->tls != NULL ? 0 : -1;
}

int generation_read_listen(struct generation *g, struct buf *faults)
{
    struct settings *s = &g->settings;
    int err = 0;
    s->nlisten = generation_enter(g, "listen");
    s->listen = arena_zalloc(&g->arena, (s->nlisten + 1) * sizeof *s->listen);
    for (uint32_t i = 0; i < s->nlisten; i++) {
        lua_rawgeti(g->L, -1, (int)i + 1);
        if (read_address(g, &s->listen[i], faults) != 0)
            err = -1;
        lua_pop(g->L, 1);
    }
    generation_leave(g);
    s->has_admin = generation_get_bool(g, "admin");
    if (s->has_admin) {
        generation_enter(g, "admin");
        if (read_address(g, &s->admin, faults) != 0)
            err = -1;
        s->admin_token = generation_get_text(g, "token");
        generation_leave(g);
    }
    return err;
}

/* A process may have only so many descriptors, whatever the configuration says. The default asks
 * for nothing: it is as many as there is room for. */
void generation_warn_connections(struct generation *g)
{
    const struct settings *set = &g->settings;
    unsigned long most = descriptors_raise();
    unsigned long workers = set->workers > 0 ? set->workers : uv_available_parallelism();
    unsigned long share = (set->connections + workers - 1) / workers;
    if (generation_get_bool(g, "connections_set") && share + descriptors_reserve(most) > most)
        buf_printf(&g->warnings,
                   "limits.connections: a worker's share of %lu does not fit the %lu descriptors "
                   "that it may have (RLIMIT_NOFILE); raise that, or lower this\n",
                   share, most);
}

void generation_undo_listen(struct generation *g)
{
    for (uint32_t i = 0; i < g->settings.nlisten; i++)
        tls_context_unref(g->settings.listen[i].tls);
    tls_context_unref(g->settings.admin.tls);
}
