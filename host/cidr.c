/* See cidr.h. */
#include "cidr.h"

#include <arpa/inet.h>
#include <string.h>
#include <uv.h>

struct ip ip_of_bytes(const void *bytes, uint8_t size)
{
    static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };
    struct ip ip = { .size = size };
    if (size == 16 && memcmp(bytes, mapped, sizeof mapped) == 0) {
        ip.size = 4;
        memcpy(ip.bytes, (const uint8_t *)bytes + 12, 4);
    } else {
        memcpy(ip.bytes, bytes, size);
    }
    return ip;
}

int ip_parse(struct slice text, struct ip *out)
{
    char copy[INET6_ADDRSTRLEN];
    uint8_t bytes[16];
    if (text.n == 0 || text.n >= sizeof copy || memchr(text.p, '\0', text.n) != NULL)
        return UV_EINVAL;
    memcpy(copy, text.p, text.n);
    copy[text.n] = '\0';
    if (inet_pton(AF_INET, copy, bytes) == 1)
        *out = ip_of_bytes(bytes, 4);
    else if (inet_pton(AF_INET6, copy, bytes) == 1)
        *out = ip_of_bytes(bytes, 16);
    else
        return UV_EINVAL;
    return 0;
}

struct ip ip_of_sockaddr(const struct sockaddr *sa)
{
    if (sa->sa_family == AF_INET)
        return ip_of_bytes(&((const struct sockaddr_in *)(const void *)sa)->sin_addr, 4);
    if (sa->sa_family == AF_INET6)
        return ip_of_bytes(&((const struct sockaddr_in6 *)(const void *)sa)->sin6_addr, 16);
    return (struct ip){ 0 };
}

const char *ip_text(const struct ip *ip, char out[IP_TEXT])
{
    out[0] = '\0';
    if (ip->size != 0)
        inet_ntop(ip->size == 4 ? AF_INET : AF_INET6, ip->bytes, out, IP_TEXT);
    return out;
}

bool ip_same(const struct ip *a, const struct ip *b)
{
    return a->size == b->size && memcmp(a->bytes, b->bytes, a->size) == 0;
}

static bool same_prefix(const uint8_t *a, const uint8_t *b, unsigned bits)
{
    unsigned whole = bits / 8, rest = bits % 8;
    if (memcmp(a, b, whole) != 0)
        return false;
    return rest == 0 || ((a[whole] ^ b[whole]) >> (8 - rest)) == 0;
}

/* The prefix of an address that was written as IPv6 but is IPv4 counts from its last 32 bits. */
static int parse_bits(struct slice text, bool written_as_6, const struct ip *ip, unsigned *bits)
{
    unsigned max = written_as_6 ? 128 : 32;
    *bits = 0;
    if (text.n == 0 || text.n > 3 || (text.n > 1 && text.p[0] == '0'))
        return UV_EINVAL;
    for (size_t i = 0; i < text.n; i++) {
        if (text.p[i] < '0' || text.p[i] > '9')
            return UV_EINVAL;
        *bits = *bits * 10 + (unsigned)(text.p[i] - '0');
    }
    if (*bits > max)
        return UV_EINVAL;
    if (written_as_6 && ip->size == 4) {
        if (*bits < 96)
            return UV_EINVAL;
        *bits -= 96;
    }
    return 0;
}

int cidr_parse(struct slice text, struct cidr *out)
{
    static const uint8_t none[16];
    uint8_t host[16];
    const char *slash = memchr(text.p, '/', text.n);
    struct slice address = { text.p, slash != NULL ? (size_t)(slash - text.p) : text.n };
    unsigned bits;
    if (ip_parse(address, &out->ip) != 0)
        return UV_EINVAL;
    bits = out->ip.size * 8u;
    if (slash != NULL && parse_bits((struct slice){ slash + 1, text.n - address.n - 1 },
                                    memchr(address.p, ':', address.n) != NULL, &out->ip, &bits))
        return UV_EINVAL;
    out->bits = (uint8_t)bits;
    memcpy(host, out->ip.bytes, sizeof host); /* what stands behind the prefix */
    memset(host, 0, bits / 8);
    if (bits % 8 != 0)
        host[bits / 8] &= (uint8_t)(0xff >> (bits % 8));
    return memcmp(host, none, sizeof none) == 0 ? 0 : UV_EINVAL;
}

bool cidr_has(const struct cidr *c, const struct ip *ip)
{
    return c->ip.size == ip->size && same_prefix(c->ip.bytes, ip->bytes, c->bits);
}
