/* See address.h. */
#include "address.h"

#include <string.h>
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
