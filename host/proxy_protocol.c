/* See proxy_protocol.h. Section numbers are those of proxy-protocol.txt. */
#include "proxy_protocol.h"

#include "chars.h"

enum {
    V1_MAX = 107, /* section 2.1, with its CRLF */
    V2_FIXED = 16,
    V2_INET = 12,
    V2_INET6 = 36,
    V2_UNIX = 216,
    TLV_CRC32C = 3
};

static const char v2_signature[12] = "\r\n\r\n\0\r\nQUIT\n";

static enum proxy_protocol bad(const char **why, const char *text)
{
    *why = text;
    return PROXY_BAD;
}

/* --- version 1: "PROXY TCP4 192.0.2.1 198.51.100.7 56324 443\r\n" --- */

/* The word up to the next space, which is taken as well; the last word ends with the line. */
static bool take_word(struct slice *line, struct slice *word, bool last)
{
    const char *space = line->n > 0 ? memchr(line->p, ' ', line->n) : NULL;
    if ((space == NULL) != last)
        return false;
    word->p = line->p;
    word->n = space != NULL ? (size_t)(space - line->p) : line->n;
    size_t used = word->n + (space != NULL);
    line->p += used;
    line->n -= used;
    return word->n > 0;
}

static bool take_ip(struct slice *line, uint8_t size, struct ip *out)
{
    struct slice word;
    bool six = size == 16;
    /* What is IPv4 written as IPv6 is given as TCP6, and is IPv4 to us. */
    return take_word(line, &word, false) && ip_parse(word, out) == 0 &&
           (memchr(word.p, ':', word.n) != NULL) == six;
}

static bool take_port(struct slice *line, bool last, int *out)
{
    struct slice word;
    if (!take_word(line, &word, last) || word.n > 5 || (word.p[0] == '0' && word.n > 1))
        return false;
    *out = 0;
    for (size_t i = 0; i < word.n; i++) {
        if (!char_is(word.p[i], CHAR_DIGIT))
            return false;
        *out = *out * 10 + (word.p[i] - '0');
    }
    return *out <= 65535;
}

static enum proxy_protocol parse_v1(struct slice bytes, struct proxy_header *out, size_t *used,
                                    const char **why)
{
    size_t n = bytes.n < V1_MAX ? bytes.n : V1_MAX;
    const char *end = memchr(bytes.p, '\n', n);
    struct slice line, word;
    if (end == NULL)
        return n < V1_MAX ? PROXY_MORE : bad(why, "a line of more than 107 bytes");
    if (end[-1] != '\r')
        return bad(why, "the line does not end in CRLF");
    *used = (size_t)(end - bytes.p) + 1;
    line = (struct slice){ bytes.p + 6, *used - 8 };
    if (slice_starts(line, SLICE("UNKNOWN")) && (line.n == 7 || line.p[7] == ' '))
        return PROXY_DONE;
    if (!take_word(&line, &word, false))
        return bad(why, "the line is not complete");
    bool six = slice_eq(word, SLICE("TCP6"));
    if (!six && !slice_eq(word, SLICE("TCP4")))
        return bad(why, "neither TCP4, TCP6 nor UNKNOWN");
    uint8_t size = six ? 16 : 4;
    struct proxy_header found;
    if (!take_ip(&line, size, &found.source) || !take_ip(&line, size, &found.destination))
        return bad(why, "an address is not valid");
    if (!take_port(&line, false, &found.source_port) ||
        !take_port(&line, true, &found.destination_port))
        return bad(why, "a port is not valid");
    *out = found;
    return PROXY_DONE;
}

/* --- version 2 --- */

static unsigned u16(const uint8_t *p)
{
    return (unsigned)p[0] << 8 | p[1];
}

static uint32_t u32(const uint8_t *p)
{
    return (uint32_t)u16(p) << 16 | u16(p + 2);
}

/* CRC-32C (Castagnoli), reflected; section 2.2.3. The four bytes from `at` count as zero. */
static uint32_t crc32c(const uint8_t *p, size_t n, size_t at)
{
    uint32_t crc = 0xffffffff;
    for (size_t i = 0; i < n; i++) {
        crc ^= i >= at && i < at + 4 ? 0 : p[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78 : 0);
    }
    return ~crc;
}

/* Section 2.2: type, length, value; `from` is where they begin, n where the header ends. */
static bool tlvs_fit(const uint8_t *p, size_t from, size_t n, const char **why)
{
    while (from < n) {
        if (n - from < 3 || n - from - 3 < u16(p + from + 1)) {
            *why = "a TLV does not fit";
            return false;
        }
        size_t length = u16(p + from + 1), value = from + 3;
        if (p[from] == TLV_CRC32C && (length != 4 || crc32c(p, n, value) != u32(p + value))) {
            *why = "the checksum is wrong";
            return false;
        }
        from = value + length;
    }
    return true;
}

static void take_addresses(const uint8_t *p, uint8_t size, struct proxy_header *out)
{
    out->source = ip_of_bytes(p, size);
    out->destination = ip_of_bytes(p + size, size);
    out->source_port = (int)u16(p + 2 * size);
    out->destination_port = (int)u16(p + 2 * size + 2);
}

static enum proxy_protocol parse_v2(struct slice bytes, struct proxy_header *out, size_t *used,
                                    const char **why)
{
    const uint8_t *p = (const uint8_t *)bytes.p;
    if (bytes.n < V2_FIXED)
        return PROXY_MORE;
    unsigned command = p[12] & 0x0f, family = p[13];
    size_t total = V2_FIXED + u16(p + 14), addresses;
    if (p[12] >> 4 != 2 || command > 1)
        return bad(why, "an unknown version or command");
    switch (family) {
    case 0x00: addresses = 0; break;
    case 0x11: addresses = V2_INET; break;
    case 0x21: addresses = V2_INET6; break;
    case 0x31: addresses = V2_UNIX; break;
    default: addresses = command == 0 ? 0 : SIZE_MAX; /* LOCAL: ignored, section 2.2 */
    }
    if (addresses == SIZE_MAX)
        return bad(why, "an unknown family or transport");
    if (total > PROXY_PROTOCOL_MAX)
        return bad(why, "a header of more than 4096 bytes");
    if (V2_FIXED + addresses > total && command == 1)
        return bad(why, "the addresses do not fit");
    if (bytes.n < total)
        return PROXY_MORE;
    *used = total;
    if (command == 0) /* the proxy's own, a health check: the rest is skipped */
        return PROXY_DONE;
    if (family != 0 && !tlvs_fit(p, V2_FIXED + addresses, total, why))
        return PROXY_BAD;
    if (family == 0x11)
        take_addresses(p + V2_FIXED, 4, out);
    else if (family == 0x21)
        take_addresses(p + V2_FIXED, 16, out);
    return PROXY_DONE;
}

/* --- which of them --- */

static bool may_become(struct slice bytes, struct slice whole)
{
    size_t n = bytes.n < whole.n ? bytes.n : whole.n;
    return n == 0 || memcmp(bytes.p, whole.p, n) == 0;
}

enum proxy_protocol proxy_protocol_parse(struct slice bytes, struct proxy_header *out, size_t *used,
                                         const char **why)
{
    const struct slice v1 = SLICE("PROXY "), v2 = { v2_signature, sizeof v2_signature };
    *out = (struct proxy_header){ .source_port = 0 };
    *used = 0;
    if (may_become(bytes, v2))
        return parse_v2(bytes, out, used, why);
    if (may_become(bytes, v1))
        return bytes.n < v1.n ? PROXY_MORE : parse_v1(bytes, out, used, why);
    return bad(why, "no header of the PROXY protocol");
}
