/* IP addresses and networks as plain data. An IPv4 address that is written as IPv6 (::ffff:a.b.c.d,
 * RFC 4291, section 2.5.5.2) is the IPv4 address: what a dual-stack socket reports and what a
 * configuration names are then the same. */
#ifndef TOLLGATE_CIDR_H
#define TOLLGATE_CIDR_H

#include <stdbool.h>
#include <stdint.h>

#include "slice.h"

struct sockaddr;

enum { IP_TEXT = 46 }; /* bytes; the longest text with its zero */

struct ip {
    uint8_t size; /* 4 or 16 bytes; 0: none */
    uint8_t bytes[16];
};

struct cidr {
    struct ip ip;
    uint8_t bits;
};

/* "192.0.2.1", "2001:db8::1"; no brackets, port or zone. 0, or UV_EINVAL. */
int ip_parse(struct slice text, struct ip *out);
/* None where it is of another family. */
struct ip ip_of_sockaddr(const struct sockaddr *sa);
/* size 4 or 16. */
struct ip ip_of_bytes(const void *bytes, uint8_t size);
/* The canonical form (RFC 5952); "" for none. Returns out. */
const char *ip_text(const struct ip *ip, char out[IP_TEXT]);
bool ip_same(const struct ip *a, const struct ip *b);

/* "10.0.0.0/8" without bits behind the prefix, or a single address. 0, or UV_EINVAL. */
int cidr_parse(struct slice text, struct cidr *out);
bool cidr_has(const struct cidr *c, const struct ip *ip);

#endif
