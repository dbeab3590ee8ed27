/* See address.h. */
#include "address.h"

#include <arpa/inet.h>
#include <stdio.h>
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

const char *address_text(const struct address *a, char *out, size_t size)
{
    char ip[64] = "";
    if (a->path[0] != '\0') {
        snprintf(out, size, "unix:%s", a->path);
    } else if (a->u.sa.sa_family == AF_INET6) {
        uv_ip6_name(&a->u.in6, ip, sizeof ip);
        snprintf(out, size, "[%s]:%d", ip, ntohs(a->u.in6.sin6_port));
    } else {
        uv_ip4_name(&a->u.in, ip, sizeof ip);
        snprintf(out, size, "%s:%d", ip, ntohs(a->u.in.sin_port));
    }
    return out;
}
