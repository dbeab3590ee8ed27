/* See balance.h. */
#include "balance.h"

#include <stdbool.h>

static bool fits(const struct balance_item *v, uint32_t i, uint64_t left)
{
    return (left >> i & 1) != 0 && v[i].weight > 0;
}

/* The lowest tier that has a candidate; false where there is none. */
static bool lowest_tier(const struct balance_item *v, uint32_t n, uint64_t left, uint32_t *tier)
{
    bool found = false;
    for (uint32_t i = 0; i < n; i++) {
        if (fits(v, i, left) && (!found || v[i].tier < *tier)) {
            *tier = v[i].tier;
            found = true;
        }
    }
    return found;
}

/* Keeps those candidates with the least (in flight + 1) / weight. */
static uint64_t least_loaded(const struct balance_item *v, uint32_t n, uint64_t left)
{
    uint64_t kept = 0, load = 0, weight = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (!fits(v, i, left))
            continue;
        uint64_t a = ((uint64_t)v[i].inflight + 1) * weight, b = load * v[i].weight;
        if (kept != 0 && a > b)
            continue;
        kept = kept != 0 && a == b ? kept | (uint64_t)1 << i : (uint64_t)1 << i;
        load = (uint64_t)v[i].inflight + 1;
        weight = v[i].weight;
    }
    return kept;
}

int balance_pick(struct balance_item *v, uint32_t n, enum balance_kind kind, uint64_t left)
{
    uint32_t tier = 0;
    int64_t total = 0;
    int best = -1;
    if (!lowest_tier(v, n, left, &tier))
        return -1;
    for (uint32_t i = 0; i < n; i++) {
        if (v[i].tier != tier)
            left &= ~((uint64_t)1 << i);
    }
    if (kind == BALANCE_LEAST_IN_FLIGHT)
        left = least_loaded(v, n, left);
    for (uint32_t i = 0; i < n; i++) {
        if (!fits(v, i, left))
            continue;
        v[i].current += v[i].weight;
        total += v[i].weight;
        if (best < 0 || v[i].current > v[best].current)
            best = (int)i;
    }
    v[best].current -= total;
    return best;
}

void balance_turn(struct balance_item *v, uint32_t n, uint32_t turns)
{
    uint64_t done = 0; /* tiers */
    for (uint32_t i = 0; i < n; i++) {
        uint64_t peers = 0;
        for (uint32_t k = i; k < n; k++)
            peers |= v[k].tier == v[i].tier ? (uint64_t)1 << k : 0;
        for (uint32_t t = 0; t < turns && (done & peers) == 0; t++)
            balance_pick(v, n, BALANCE_ROUND_ROBIN, peers);
        done |= peers;
    }
}
