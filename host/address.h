/* Where to dial: an IP address with a port, or the path of a Unix socket; one or several. */
#ifndef TOLLGATE_ADDRESS_H
#define TOLLGATE_ADDRESS_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>

#include "cidr.h"

enum { ADDRESSES_MAX = 16 };

/* An address to dial: a socket address, or a path of a Unix socket. */
struct address {
    union {
        struct sockaddr sa;
        struct sockaddr_in in;
        struct sockaddr_in6 in6;
    } u;
    char path[108]; /* not empty: Unix socket */
};

/* Those of one name, in the order in which they are to be tried. */
struct addresses {
    unsigned n;
    struct address v[ADDRESSES_MAX];
};

/* Parses "1.2.3.4", "::1" with a port, or fills a Unix path. 0, or UV_EINVAL. */
int address_of_ip(const char *ip, int port, struct address *out);
int address_of_path(const char *path, struct address *out);
void address_of(const struct ip *ip, int port, struct address *out);

/* A host that nobody needs to be asked for: an address, or "localhost", which is both loopback
 * addresses (RFC 6761, section 6.3). False for other names. */
bool addresses_known(const char *host, int port, struct addresses *out);

#endif
