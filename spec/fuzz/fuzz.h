/* What fuzz targets share. A target reads its input as it would come over the wire, so that corpora
 * are ordinary messages; whatever else it has to choose (where the bytes are split) follows from
 * a hash of the input, so that a finding repeats. */
#ifndef TOLLGATE_FUZZ_H
#define TOLLGATE_FUZZ_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "buf.h"
#include "slice.h"

/* A property that does not hold is a finding. */
#define CHECK(what)                                                                                \
    do {                                                                                           \
        if (!(what)) {                                                                             \
            fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, __LINE__, #what);              \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

/* Random numbers that follow from the input. */
struct fuzz_random {
    uint64_t state;
};

struct fuzz_random fuzz_random(struct slice input);
/* Below `end`, which is not 0. */
size_t fuzz_below(struct fuzz_random *r, size_t end);

/* Ways to cut an input into pieces. */
enum fuzz_cut { FUZZ_WHOLE, FUZZ_BYTES, FUZZ_PIECES, FUZZ_CUTS };

/* The next piece; empty at the end. With FUZZ_PIECES it is a copy of its own, so that reading past
 * it is seen; `hold` owns it until the next call. */
struct slice fuzz_piece(struct slice *rest, enum fuzz_cut cut, struct fuzz_random *r, char **hold);

/* Both have to be equal; else both are shown. */
void fuzz_same(const struct buf *a, const struct buf *b, const char *what);

#endif
