/* See encoding.h. */
#include "encoding.h"

#include "chars.h"

static const char STANDARD[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
static const char URL[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

size_t encoding_hex(struct slice in, char *out)
{
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < in.n; i++) {
        unsigned char c = (unsigned char)in.p[i];
        *out++ = digits[c >> 4];
        *out++ = digits[c & 15];
    }
    return in.n * 2;
}

long encoding_hex_decode(struct slice in, char *out)
{
    if (in.n % 2 != 0)
        return ENCODING_INVALID;
    for (size_t i = 0; i < in.n; i += 2) {
        if (!char_is(in.p[i], CHAR_HEX) || !char_is(in.p[i + 1], CHAR_HEX))
            return ENCODING_INVALID;
        *out++ = (char)(char_hex(in.p[i]) << 4 | char_hex(in.p[i + 1]));
    }
    return (long)(in.n / 2);
}

size_t encoding_base64(struct slice in, bool url, char *out)
{
    const char *alphabet = url ? URL : STANDARD;
    const unsigned char *p = (const unsigned char *)in.p;
    char *start = out;
    for (size_t i = 0; i < in.n; i += 3) {
        size_t left = in.n - i;
        uint32_t bits = (uint32_t)p[i] << 16 | (left > 1 ? (uint32_t)p[i + 1] << 8 : 0) |
                        (left > 2 ? p[i + 2] : 0);
        *out++ = alphabet[bits >> 18];
        *out++ = alphabet[bits >> 12 & 63];
        if (left > 1)
            *out++ = alphabet[bits >> 6 & 63];
        if (left > 2)
            *out++ = alphabet[bits & 63];
    }
    while (!url && (out - start) % 4 != 0)
        *out++ = '=';
    return (size_t)(out - start);
}

/* The value of a character of the alphabet, or -1. */
static int value_of(char c, bool url)
{
    if (c >= 'A' && c <= 'Z')
        return c - 'A';
    if (c >= 'a' && c <= 'z')
        return c - 'a' + 26;
    if (c >= '0' && c <= '9')
        return c - '0' + 52;
    if (c == (url ? '-' : '+'))
        return 62;
    return c == (url ? '_' : '/') ? 63 : -1;
}

/* Takes the padding off; false where it is wrong. */
static bool unpad(struct slice *in, bool url)
{
    size_t padding = 0;
    while (padding < 2 && padding < in->n && in->p[in->n - 1 - padding] == '=')
        padding++;
    bool whole = in->n % 4 == 0;
    in->n -= padding;
    return in->n % 4 != 1 && (whole || (url && padding == 0));
}

long encoding_base64_decode(struct slice in, bool url, char *out)
{
    char *start = out;
    uint32_t bits = 0;
    int nbits = 0;
    if (!unpad(&in, url))
        return ENCODING_INVALID;
    for (size_t i = 0; i < in.n; i++) {
        int value = value_of(in.p[i], url);
        if (value < 0)
            return ENCODING_INVALID;
        bits = bits << 6 | (uint32_t)value;
        nbits += 6;
        if (nbits >= 8) {
            nbits -= 8;
            *out++ = (char)(bits >> nbits);
        }
    }
    return (bits & ((1u << nbits) - 1)) == 0 ? out - start : ENCODING_INVALID;
}
