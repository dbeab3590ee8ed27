/* Classes of bytes in the grammars of HTTP and URIs, as one table: a scan costs a load and a
 * mask a byte. */
#ifndef TOLLGATE_CHARS_H
#define TOLLGATE_CHARS_H

#include <stdbool.h>

enum {
    CHAR_TOKEN = 1, /* tchar (RFC 9110, section 5.6.2) */
    CHAR_VALUE = 2, /* HTAB, SP, VCHAR, obs-text: in field values (RFC 9110, section 5.5) */
    CHAR_PATH = 4,  /* pchar without '%', and '/' (RFC 3986, section 3.3) */
    CHAR_QUERY = 8, /* CHAR_PATH and '?'; also [ ] { } | \ ^ `, which browsers leave as they are */
    CHAR_UNRESERVED = 16, /* RFC 3986, section 2.3 */
    CHAR_HEX = 32,
    CHAR_DIGIT = 64
};

extern const unsigned char char_class[256];

static inline bool char_is(char c, unsigned classes)
{
    return (char_class[(unsigned char)c] & classes) != 0;
}

/* The value of a hexadecimal digit (CHAR_HEX). */
static inline unsigned char_hex(char c)
{
    return (unsigned)(c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10);
}

#endif
