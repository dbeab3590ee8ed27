/* See crowd.h: open addressing with linear probing. Who leaves last has those behind moved up, so
 * that there are no marks of deleted ones and a table that is full of strangers for a while is as
 * fast as before once they are gone. */
#include "crowd.h"

#include "mem.h"
#include "siphash.h"

enum { CAP_MIN = 64 };

static uint32_t home(const struct crowd *c, const struct crowd_net *net)
{
    struct slice key = { (const char *)net, sizeof *net };
    return (uint32_t)siphash(c->secret, key) & (c->cap - 1);
}

static bool same(const struct crowd_net *a, const struct crowd_net *b)
{
    return memcmp(a, b, sizeof *a) == 0;
}

/* Its place, or the free one where it would go. There is a free one always. */
static uint32_t find(const struct crowd *c, const struct crowd_net *net)
{
    uint32_t i = home(c, net);
    while (c->v[i].n > 0 && !same(&c->v[i].net, net))
        i = (i + 1) & (c->cap - 1);
    return i;
}

void crowd_init(struct crowd *c, const uint64_t secret[2])
{
    *c = (struct crowd){ { secret[0], secret[1] }, NULL, 0, 0 };
}

void crowd_deinit(struct crowd *c)
{
    mem_free(c->v);
    c->v = NULL;
    c->cap = c->used = 0;
}

struct crowd_net crowd_net(const struct ip *ip)
{
    struct crowd_net net = { .size = ip->size > 8 ? 8 : ip->size };
    memcpy(net.bytes, ip->bytes, net.size);
    return net;
}

uint32_t crowd_count(const struct crowd *c, const struct crowd_net *net)
{
    return c->cap == 0 ? 0 : c->v[find(c, net)].n;
}

static void grow(struct crowd *c)
{
    struct crowd old = *c;
    c->cap = old.cap == 0 ? CAP_MIN : old.cap * 2;
    c->v = mem_zalloc(c->cap * sizeof *c->v);
    for (uint32_t i = 0; i < old.cap; i++) {
        if (old.v[i].n > 0)
            c->v[find(c, &old.v[i].net)] = old.v[i];
    }
    mem_free(old.v);
}

void crowd_enter(struct crowd *c, const struct crowd_net *net)
{
    if (net->size == 0)
        return;
    if (c->used >= c->cap / 4 * 3)
        grow(c);
    struct crowd_entry *e = &c->v[find(c, net)];
    if (e->n++ == 0) {
        e->net = *net;
        c->used++;
    }
}

/* Whoever would not be found any more across the free place moves there. */
static void close_gap(struct crowd *c, uint32_t gap)
{
    uint32_t mask = c->cap - 1;
    for (uint32_t i = (gap + 1) & mask; c->v[i].n > 0; i = (i + 1) & mask) {
        uint32_t from_home = (i - home(c, &c->v[i].net)) & mask;
        if (from_home < ((i - gap) & mask))
            continue;
        c->v[gap] = c->v[i];
        c->v[i].n = 0;
        gap = i;
    }
}

void crowd_leave(struct crowd *c, const struct crowd_net *net)
{
    if (net->size == 0)
        return;
    uint32_t i = find(c, net);
    if (--c->v[i].n > 0)
        return;
    c->used--;
    close_gap(c, i);
}
