/* Borrowed bytes: a pointer and a length, owned by somebody else (an arena, a read buffer, a
 * literal). Not terminated by NUL. Whoever takes a slice says how long it stays valid. */
#ifndef TOLLGATE_SLICE_H
#define TOLLGATE_SLICE_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <strings.h>

struct slice {
    const char *p;
    size_t n;
};

#define SLICE(literal) ((struct slice){ (literal), sizeof(literal) - 1 })

static inline struct slice slice_of(const char *text)
{
    return (struct slice){ text, strlen(text) };
}

static inline bool slice_eq(struct slice a, struct slice b)
{
    return a.n == b.n && (a.n == 0 || memcmp(a.p, b.p, a.n) == 0);
}

/* Equal but for ASCII case; the process runs in the C locale. */
static inline bool slice_ieq(struct slice a, struct slice b)
{
    return a.n == b.n && (a.n == 0 || strncasecmp(a.p, b.p, a.n) == 0);
}

static inline bool slice_starts(struct slice a, struct slice prefix)
{
    return a.n >= prefix.n && (prefix.n == 0 || memcmp(a.p, prefix.p, prefix.n) == 0);
}

static inline bool slice_ends(struct slice a, struct slice suffix)
{
    return a.n >= suffix.n &&
           (suffix.n == 0 || memcmp(a.p + a.n - suffix.n, suffix.p, suffix.n) == 0);
}

/* Without spaces and tabs at both ends (OWS of RFC 9110, section 5.6.3). */
static inline struct slice slice_trim(struct slice s)
{
    while (s.n > 0 && (s.p[0] == ' ' || s.p[0] == '\t')) {
        s.p++;
        s.n--;
    }
    while (s.n > 0 && (s.p[s.n - 1] == ' ' || s.p[s.n - 1] == '\t'))
        s.n--;
    return s;
}

#endif
