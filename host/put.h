/* Text written into room that was made before: each function writes at `to` and returns where the
 * next text goes. What knows how long its text may become makes the room once, and spends nothing
 * on formats and bounds. */
#ifndef TOLLGATE_PUT_H
#define TOLLGATE_PUT_H

#include <stdint.h>

#include "slice.h"

enum { PUT_NUMBER = 20, PUT_SECONDS = PUT_NUMBER + 4 }; /* bytes: the longest ones */

static inline char *put_slice(char *to, struct slice s)
{
    if (s.n > 0)
        memcpy(to, s.p, s.n);
    return to + s.n;
}

/* As put_slice, without a call for what is short. */
static inline char *put_short(char *to, struct slice s)
{
    uint64_t a, b;
    uint32_t c, d;
    if (s.n >= 8 && s.n <= 32) {
        for (size_t i = 0; i + 8 < s.n; i += 8) {
            memcpy(&a, s.p + i, 8);
            memcpy(to + i, &a, 8);
        }
        memcpy(&b, s.p + s.n - 8, 8); /* some bytes twice */
        memcpy(to + s.n - 8, &b, 8);
    } else if (s.n >= 4 && s.n < 8) {
        memcpy(&c, s.p, 4);
        memcpy(&d, s.p + s.n - 4, 4);
        memcpy(to, &c, 4);
        memcpy(to + s.n - 4, &d, 4);
    } else if (s.n > 0 && s.n < 4) {
        to[0] = s.p[0];
        to[s.n / 2] = s.p[s.n / 2];
        to[s.n - 1] = s.p[s.n - 1];
    } else {
        return put_slice(to, s);
    }
    return to + s.n;
}

/* Three digits of a number below 1000. */
static inline char *put_three(char *to, unsigned n)
{
    unsigned tens = n / 10, hundreds = n / 100;
    to[0] = (char)('0' + hundreds);
    to[1] = (char)('0' + tens - 10 * hundreds);
    to[2] = (char)('0' + n - 10 * tens);
    return to + 3;
}

static inline char *put_below_1000(char *to, unsigned n)
{
    if (n >= 100)
        return put_three(to, n);
    if (n >= 10)
        *to++ = (char)('0' + n / 10);
    *to = (char)('0' + n % 10);
    return to + 1;
}

/* In decimal, by three digits; most counts and statuses have no more. */
static inline char *put_number(char *to, uint64_t n)
{
    unsigned threes[PUT_NUMBER / 3];
    int i = 0;
    for (; n >= 1000; n /= 1000)
        threes[i++] = (unsigned)(n % 1000);
    to = put_below_1000(to, (unsigned)n);
    while (i > 0)
        to = put_three(to, threes[--i]);
    return to;
}

/* Milliseconds as seconds with three decimals. */
static inline char *put_seconds(char *to, uint64_t ms)
{
    if (ms < 10) {
        memcpy(to, "0.00", 4);
        to[4] = (char)('0' + ms);
        return to + 5;
    }
    uint64_t whole = ms / 1000;
    to = put_number(to, whole);
    *to = '.';
    return put_three(to + 1, (unsigned)(ms - whole * 1000));
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
