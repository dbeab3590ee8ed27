/* See fuzz.h. */
#include "fuzz.h"

struct fuzz_random fuzz_random(struct slice input)
{
    uint64_t h = 14695981039346656037u; /* FNV-1a */
    for (size_t i = 0; i < input.n; i++)
        h = (h ^ (unsigned char)input.p[i]) * 1099511628211u;
    return (struct fuzz_random){ h };
}

__attribute__((no_sanitize("integer"))) size_t fuzz_below(struct fuzz_random *r, size_t end)
{
    uint64_t z = r->state += 0x9e3779b97f4a7c15u; /* splitmix64 */
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (size_t)((z ^ (z >> 31)) % end);
}

struct slice fuzz_piece(struct slice *rest, enum fuzz_cut cut, struct fuzz_random *r, char **hold)
{
    size_t n = rest->n;
    if (cut == FUZZ_BYTES && n > 0)
        n = 1;
    else if (cut == FUZZ_PIECES && n > 0)
        n = 1 + fuzz_below(r, n < 40 ? n : 40);
    struct slice piece = { rest->p, n };
    free(*hold);
    *hold = NULL;
    if (cut == FUZZ_PIECES && n > 0) {
        *hold = malloc(n);
        CHECK(*hold != NULL);
        piece.p = memcpy(*hold, rest->p, n);
    }
    rest->p += n;
    rest->n -= n;
    return piece;
}

void fuzz_same(const struct buf *a, const struct buf *b, const char *what)
{
    if (slice_eq(buf_slice(a), buf_slice(b)))
        return;
    fprintf(stderr, "%s differ:\n--- one\n%.*s\n--- the other\n%.*s\n---\n", what, (int)a->n, a->p,
            (int)b->n, b->p);
    abort();
}
