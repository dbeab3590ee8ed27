/* One API key as its line in the key file describes it. */
#ifndef TOLLGATE_KEY_RECORD_H
#define TOLLGATE_KEY_RECORD_H

#include <stdint.h>

#include "arena.h"
#include "buf.h"

enum { KEY_DIGEST = 32, KEY_ID_MAX = 128 }; /* bytes */

/* Text and routes live in the arena that the record was parsed into. */
struct key_record {
    unsigned char digest[KEY_DIGEST]; /* SHA-256 of the secret */
    struct slice id;                  /* never empty */
    struct slice tenant, plan;        /* p is NULL where absent */
    const struct slice *routes;       /* NULL: all routes; of length 0: none */
    uint32_t nroutes;
    uint32_t line;          /* in its file, the first is 1 */
    double rps, burst;      /* 0 where absent; a burst is >= 1 */
    int64_t monthly_tokens; /* -1 where absent; else < 2^53 */
    int64_t concurrency;    /* 0 where absent; else < 2^53 */
    bool disabled;
};

/* Reads one JSON object: id and secret_sha256 are required, the other members may be absent,
 * unknown and repeated ones are refused. 0, or -1 with what is wrong appended to `fault`,
 * without the place. */
int key_record_parse(struct key_record *r, struct arena *a, struct slice line, struct buf *fault);

#endif
