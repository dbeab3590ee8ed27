/* How many connections each client's address has. An IPv6 client counts by its /64, which is what
 * one client commonly has to itself. Plain data: a hash table with a secret key, since strangers
 * choose addresses. It grows with the addresses that are there at once and allocates nothing
 * otherwise. */
#ifndef TOLLGATE_CROWD_H
#define TOLLGATE_CROWD_H

#include "cidr.h"

/* What counts as one client. */
struct crowd_net {
    uint8_t size; /* bytes: 4, or 8 of an IPv6 address; 0: not counted */
    uint8_t bytes[8];
};

struct crowd_entry {
    struct crowd_net net;
    uint32_t n; /* 0: free */
};

struct crowd {
    uint64_t secret[2];
    struct crowd_entry *v;
    uint32_t cap, used; /* cap: 0 or a power of two, and always more than used */
};

void crowd_init(struct crowd *c, const uint64_t secret[2]);
void crowd_deinit(struct crowd *c);
/* Not counted where the address is none. */
struct crowd_net crowd_net(const struct ip *ip);
uint32_t crowd_count(const struct crowd *c, const struct crowd_net *net);
void crowd_enter(struct crowd *c, const struct crowd_net *net);
/* Only one that has entered. */
void crowd_leave(struct crowd *c, const struct crowd_net *net);

#endif
