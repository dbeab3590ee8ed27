/* The PROXY protocol: a header is taken as a whole or not at all. Each prefix of the bytes asks for
 * more until one decides; further bytes change nothing, and none of them is looked at. Addresses
 * are as their own text says them. */
#include "fuzz.h"
#include "proxy_protocol.h"

static void check_ip(const struct ip *ip)
{
    char text[IP_TEXT], again[IP_TEXT];
    struct ip other;
    CHECK(ip->size == 0 || ip->size == 4 || ip->size == 16);
    if (ip->size == 0)
        return;
    ip_text(ip, text);
    CHECK(ip_parse(slice_of(text), &other) == 0 && ip_same(ip, &other));
    CHECK(strcmp(ip_text(&other, again), text) == 0);
}

static enum proxy_protocol parse(const uint8_t *bytes, size_t n, struct proxy_header *out,
                                 size_t *used)
{
    const char *why = NULL;
    char *copy = malloc(n > 0 ? n : 1);
    CHECK(copy != NULL);
    if (n > 0)
        memcpy(copy, bytes, n);
    enum proxy_protocol found = proxy_protocol_parse((struct slice){ copy, n }, out, used, &why);
    CHECK(found != PROXY_BAD || why != NULL);
    CHECK(found != PROXY_DONE || (*used > 0 && *used <= n && *used <= PROXY_PROTOCOL_MAX));
    free(copy);
    return found;
}

static void addresses(struct slice input)
{
    struct ip ip;
    struct cidr cidr;
    if (ip_parse(input, &ip) == 0)
        check_ip(&ip);
    if (cidr_parse(input, &cidr) == 0) {
        check_ip(&cidr.ip);
        CHECK(cidr.bits <= cidr.ip.size * 8 && cidr_has(&cidr, &cidr.ip));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    addresses((struct slice){ (const char *)bytes, n });
    struct proxy_header last, h;
    size_t used = 0, u = 0;
    enum proxy_protocol all = parse(bytes, n, &last, &used), found = PROXY_MORE;
    CHECK(all != PROXY_MORE || n < PROXY_PROTOCOL_MAX);
    for (size_t i = 0; i <= n && i <= 600 && found == PROXY_MORE; i++)
        found = parse(bytes, i, &h, &u);
    if (n <= 600 || found != PROXY_MORE)
        CHECK(found == all);
    if (all != PROXY_DONE)
        return 0;
    check_ip(&last.source);
    check_ip(&last.destination);
    CHECK(last.source_port >= 0 && last.source_port <= 65535);
    CHECK(parse(bytes, used, &h, &u) == PROXY_DONE && u == used);
    CHECK(ip_same(&h.source, &last.source) && h.source_port == last.source_port);
    return 0;
}
