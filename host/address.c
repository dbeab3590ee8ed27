/* See address.h. */
#include "address.h"

#include <string.h>
#include <strings.h>
#include <uv.h>

int address_of_ip(const char *ip, int port, struct address *out)
{
    memset(out, 0, sizeof *out);
    if (uv_ip4_addr(ip, port, &out->u.in) == 0 || uv_ip6_addr(ip, port, &out->u.in6) == 0)
        return 0;
    return UV_EINVAL;
}

int address_of_path(const char *path, struct address *out)
{
    memset(out, 0, sizeof *out);
    if (path[0] == '\0' || strlen(path) >= sizeof out->path)
        return UV_EINVAL;
    memcpy(out->path, path, strlen(path) + 1);
    return 0;
}

void address_of(const struct ip *ip, int port, struct address *out)
{
    memset(out, 0, sizeof *out);
    if (ip->size == 4) {
        out->u.in.sin_family = AF_INET;
        out->u.in.sin_port = htons((uint16_t)port);
        memcpy(&out->u.in.sin_addr, ip->bytes, 4);
    } else {
        out->u.in6.sin6_family = AF_INET6;
        out->u.in6.sin6_port = htons((uint16_t)port);
        memcpy(&out->u.in6.sin6_addr, ip->bytes, 16);
    }
}

bool addresses_known(const char *host, int port, struct addresses *out)
{
    out->n = 1;
    if (strcasecmp(host, "localhost") != 0)
        return address_of_ip(host, port, &out->v[0]) == 0;
    address_of_ip("127.0.0.1", port, &out->v[0]);
    address_of_ip("::1", port, &out->v[1]);
    out->n = 2;
    return true;
}
