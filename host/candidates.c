/* See candidates.h. */
#include "candidates.h"

#include <string.h>

#include "mem.h"

void candidates_deinit(struct candidates *c)
{
    mem_free(c->v);
    *c = (struct candidates){ 0 };
}

struct candidate *candidates_find(const struct candidates *c, const struct ip *ip)
{
    for (unsigned i = 0; i < c->n; i++) {
        if (ip_same(&c->v[i].ip, ip))
            return &c->v[i];
    }
    return NULL;
}

bool candidates_set(struct candidates *c, const struct ip *v, unsigned n)
{
    struct candidates fresh = { .turn = c->turn };
    unsigned kept = 0;
    if (n > 0)
        fresh.v = mem_zalloc(n * sizeof *fresh.v);
    for (unsigned i = 0; i < n; i++) {
        if (candidates_find(&fresh, &v[i]) != NULL)
            continue;
        const struct candidate *old = candidates_find(c, &v[i]);
        if (old != NULL) {
            fresh.v[fresh.n++] = *old;
            kept++;
        } else {
            fresh.v[fresh.n++].ip = v[i];
        }
    }
    bool gone = kept < c->n;
    mem_free(c->v);
    *c = fresh;
    return gone;
}

void candidate_failed(struct candidate *c, uint64_t now)
{
    c->bad_until = now + ((uint64_t)CANDIDATES_BAD_MS << c->fails);
    if (c->fails < CANDIDATES_BAD_DOUBLINGS)
        c->fails++;
}

void candidate_worked(struct candidate *c)
{
    c->fails = 0;
    c->bad_until = 0;
}

/* The next one behind *at, in turn, that is good (or bad); NULL: no more. */
static const struct candidate *next_of(const struct candidates *c, unsigned *at, bool bad,
                                       uint64_t now)
{
    while (*at < c->n) {
        const struct candidate *one = &c->v[(c->turn + (*at)++) % c->n];
        if ((now < one->bad_until) == bad)
            return one;
    }
    return NULL;
}

unsigned candidates_order(struct candidates *preferred, struct candidates *other, uint64_t now,
                          struct ip *out, unsigned max)
{
    const struct candidates *const families[] = { preferred, other };
    unsigned n = 0;
    for (int bad = 0; bad < 2; bad++) {
        unsigned at[2] = { 0, 0 };
        bool more = true;
        while (more && n < max) {
            more = false;
            for (int f = 0; f < 2 && n < max; f++) {
                const struct candidate *one = next_of(families[f], &at[f], bad == 1, now);
                if (one != NULL) {
                    out[n++] = one->ip;
                    more = true;
                }
            }
        }
    }
    preferred->turn++;
    other->turn++;
    return n;
}
