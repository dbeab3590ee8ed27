/* See generation_read.h: how a target is checked, from the checked table to a struct. */
#include <lauxlib.h>

#include "generation_read.h"

static void read_status(struct generation *g, struct target_check *c)
{
    uint32_t n = generation_enter(g, "status");
    c->status = arena_zalloc(&g->arena, (n + 1) * sizeof *c->status);
    for (; c->nstatus < n; c->nstatus++) {
        lua_rawgeti(g->L, -1, (int)c->nstatus + 1);
        c->status[c->nstatus] = (struct status_range){ (int)generation_get_number(g, "first"),
                                                       (int)generation_get_number(g, "last") };
        lua_pop(g->L, 1);
    }
    generation_leave(g);
}

int generation_read_check(struct generation *g, const struct tls_remote *tls,
                          const struct target_check **out, struct buf *faults)
{
    const char *wrong = NULL;
    struct target_check *c = arena_zalloc(&g->arena, sizeof *c);
    *out = NULL;
    if (!generation_get_bool(g, "health"))
        return 0;
    generation_enter(g, "health");
    const char *url = generation_get_text(g, "url");
    c->tcp = generation_get_bool(g, "tcp");
    c->interval_ms = generation_get_number(g, "interval");
    c->timeout_ms = generation_get_number(g, "timeout");
    c->thresholds.healthy = (uint32_t)generation_get_number(g, "healthy");
    c->thresholds.unhealthy = (uint32_t)generation_get_number(g, "unhealthy");
    c->headers = generation_get_headers(g, "headers", &c->nheaders);
    read_status(g, c);
    generation_leave(g);
    if (url != NULL)
        wrong = fetch_url_parse(&g->arena, slice_of(url), &c->url);
    if (wrong != NULL) {
        buf_printf(faults, "health check of %s: %s\n", url, wrong);
        return -1;
    }
    c->tls = *tls;
    if (tls->context != NULL)
        tls_context_ref(tls->context);
    *out = c;
    return 0;
}

void generation_undo_check(const struct target_check *c)
{
    if (c != NULL)
        tls_context_unref(c->tls.context);
}

void generation_describe_check(const struct target_check *c, struct buf *out)
{
    if (c == NULL)
        return;
    buf_printf(out, "\n%d %.*s %u %u %u %u", c->tcp, (int)c->url.target.n, c->url.target.p,
               (unsigned)c->interval_ms, (unsigned)c->timeout_ms, c->thresholds.healthy,
               c->thresholds.unhealthy);
    for (uint32_t i = 0; i < c->nstatus; i++)
        buf_printf(out, " %d-%d", c->status[i].first, c->status[i].last);
    for (uint32_t i = 0; i < c->nheaders; i++)
        buf_printf(out, "\n%.*s:%.*s", (int)c->headers[i].name.n, c->headers[i].name.p,
                   (int)c->headers[i].value.n, c->headers[i].value.p);
}
