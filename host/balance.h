/* Which of several targets gets the next request: weighted, inside the lowest tier that has one
 * left. Plain data, one array an item; who asks says by a bit an item which are left.
 *
 * Round robin is the smooth one of nginx (ngx_http_upstream_get_peer): at each pick every candidate
 * gains its weight, the one with the most is taken and pays the sum of the weights. So the turns of
 * a heavy one are spread, and over any whole round each gets exactly its weight. Least in flight
 * takes the smallest (in flight + 1) / weight; equal ones are decided by the same turns. */
#ifndef TOLLGATE_BALANCE_H
#define TOLLGATE_BALANCE_H

#include <stdint.h>

enum { BALANCE_MAX = 64 }; /* items: a bit each */

enum balance_kind { BALANCE_ROUND_ROBIN, BALANCE_LEAST_IN_FLIGHT };

struct balance_item {
    uint32_t weight; /* 0: never picked */
    uint32_t tier;   /* lower ones first */
    uint32_t inflight;
    int64_t current; /* what it has gained and not paid */
};

/* The next one among those whose bit is set in `left`, or -1 where none is. Two calls for one
 * request (the first pick was not to be had) pay twice, as they do in nginx. */
int balance_pick(struct balance_item *v, uint32_t n, enum balance_kind kind, uint64_t left);
/* Moves on by so many turns, so that processes that start together do not all begin with the same
 * item. */
void balance_turn(struct balance_item *v, uint32_t n, uint32_t turns);

#endif
