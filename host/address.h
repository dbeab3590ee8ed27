/* Where to dial: an IP address with a port, or the path of a Unix socket. */
#ifndef TOLLGATE_ADDRESS_H
#define TOLLGATE_ADDRESS_H

#include <netinet/in.h>
#include <stddef.h>

/* An address to dial: a socket address, or a path of a Unix socket. */
struct address {
    union {
        struct sockaddr sa;
        struct sockaddr_in in;
        struct sockaddr_in6 in6;
    } u;
    char path[108]; /* not empty: Unix socket */
};

/* Parses "1.2.3.4", "::1" with a port, or fills a Unix path. 0, or UV_EINVAL. */
int address_of_ip(const char *ip, int port, struct address *out);
int address_of_path(const char *path, struct address *out);

#endif
