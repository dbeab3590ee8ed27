/* See generation_read.h: whom names are asked of, and which proxies are believed. */
#include "generation_read.h"

#include <string.h>

/* The texts have been checked. */
static void read_trusted(struct generation *g, const char *name, struct trusted *out)
{
    uint32_t n;
    const char **texts = generation_get_texts(g, name, &n);
    struct cidr *v = arena_alloc(&g->arena, (n + 1) * sizeof *v);
    *out = (struct trusted){ .v = v };
    for (uint32_t i = 0; i < n; i++) {
        if (strcmp(texts[i], "unix") == 0)
            out->local = true;
        else if (cidr_parse(slice_of(texts[i]), &v[out->n]) == 0)
            out->n++;
    }
}

static void read_forwarded(struct generation *g, struct settings *s)
{
    uint32_t n;
    const char **forms = generation_get_texts(g, "forwarded", &n);
    for (uint32_t i = n; i > 0; i--) { /* the first is the one that is read */
        s->forwarded.read =
            strcmp(forms[i - 1], "forwarded") == 0 ? FORWARDED_RFC7239 : FORWARDED_X;
        s->forwarded.write |= s->forwarded.read;
    }
    read_trusted(g, "trusted_proxies", &s->forwarded.trusted);
}

static void read_resolver(struct generation *g, struct settings *s)
{
    generation_enter(g, "resolver");
    s->resolver = (struct resolve_options){
        .servers = generation_get_text(g, "servers"),
        .ttl_min = generation_get_number(g, "ttl_min"),
        .ttl_max = generation_get_number(g, "ttl_max"),
        .stale = generation_get_number(g, "stale"),
        .try_ms = generation_get_number(g, "timeout"),
        .tries = (int)generation_get_number(g, "tries"),
    };
    generation_leave(g);
}

void generation_read_network(struct generation *g)
{
    read_resolver(g, &g->settings);
    read_forwarded(g, &g->settings);
}
