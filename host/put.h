/* Text written into room that was made before: each function writes at `to` and returns where the
 * next text goes. What knows how long its text may become makes the room once, and spends nothing
 * on formats and bounds. */
#ifndef TOLLGATE_PUT_H
#define TOLLGATE_PUT_H

#include <stdint.h>

#include "slice.h"

enum { PUT_NUMBER = 20 }; /* bytes: the longest number */

static inline char *put_slice(char *to, struct slice s)
{
    if (s.n > 0)
        memcpy(to, s.p, s.n);
    return to + s.n;
}

/* In decimal. */
static inline char *put_number(char *to, uint64_t value)
{
    char digits[PUT_NUMBER];
    size_t n = 0;
    do
        digits[n++] = (char)('0' + value % 10);
    while ((value /= 10) > 0);
    while (n > 0)
        *to++ = digits[--n];
    return to;
}

/* In hexadecimal, as chunks' sizes are written (RFC 9112, section 7.1). */
static inline char *put_hex(char *to, uint64_t value)
{
    int shift = 0;
    while (shift < 60 && value >> (shift + 4) != 0)
        shift += 4;
    for (; shift >= 0; shift -= 4)
        *to++ = "0123456789abcdef"[value >> shift & 15];
    return to;
}

#endif
