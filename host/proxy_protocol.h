/* The PROXY protocol, versions 1 and 2, as haproxy's proxy-protocol.txt has it: what a proxy writes
 * before a connection's first byte to say whose connection it passes on. Plain data.
 *
 * A header is taken as a whole or not at all, whatever way it was split. TLVs of version 2 are
 * checked for their lengths and passed over, but for the checksum (CRC-32C), which is verified
 * where it is there. */
#ifndef TOLLGATE_PROXY_PROTOCOL_H
#define TOLLGATE_PROXY_PROTOCOL_H

#include "cidr.h"

enum { PROXY_PROTOCOL_MAX = 4096 }; /* bytes; a longer header is refused */

enum proxy_protocol { PROXY_MORE, PROXY_DONE, PROXY_BAD };

struct proxy_header {
    struct ip source; /* none: the proxy's own connection (LOCAL), or not known; then the
                         connection's addresses stand */
    int source_port;
    struct ip destination;
    int destination_port;
};

/* Looks at all bytes that have come so far. With PROXY_DONE *used is the header's length; with
 * PROXY_BAD *why is static text. */
enum proxy_protocol proxy_protocol_parse(struct slice bytes, struct proxy_header *out, size_t *used,
                                         const char **why);

#endif
