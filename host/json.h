/* A strict JSON scanner (RFC 8259) that is fed any split of the bytes, keeps nothing of them but a
 * small capture of the current scalar, and reports each value with its place. Events and offsets do
 * not depend on the split. It decodes and encodes nothing else: who wants to change a document
 * replaces the bytes of one span. Numbers are reported as text. A byte order mark is refused. */
#ifndef TOLLGATE_JSON_H
#define TOLLGATE_JSON_H

#include <stdbool.h>
#include <stdint.h>

#include "buf.h"
#include "slice.h"

enum { JSON_DEPTH = 128, JSON_CAPTURE = 256 }; /* levels; bytes */

enum json_type {
    JSON_OBJECT,
    JSON_OBJECT_END,
    JSON_ARRAY,
    JSON_ARRAY_END,
    JSON_KEY,
    JSON_STRING,
    JSON_NUMBER,
    JSON_TRUE,
    JSON_FALSE,
    JSON_NULL
};

struct json_event {
    enum json_type type;
    int depth;           /* containers around it; the top value has 0, its members have 1 */
    uint64_t start, end; /* offsets since json_init, quotes included; of a container the bracket */
    struct slice text;   /* keys and strings decoded to UTF-8 (a lone surrogate as U+FFFD), numbers
                          * as they stand; empty for all else */
    bool whole;       /* text is all of it; false where it is only the first JSON_CAPTURE bytes */
    uint64_t decoded; /* length of the whole text in bytes, also where text is cut */
};

struct json {
    /* Called for each value; the event is borrowed until it returns. Non-zero ends the scan. */
    int (*on_event)(void *arg, const struct json_event *e);
    void *arg;
    uint64_t offset; /* bytes taken; after a fault the offset of the byte at fault */
    /* private */
    const char *fault, *literal;
    uint64_t start, decoded;
    int result, depth;
    uint16_t code, high; /* of a \u escape; a high surrogate that waits for its low one */
    uint8_t state, sub, digits;
    uint8_t utf8_left, utf8_low, utf8_high;
    bool key;
    uint8_t stack[JSON_DEPTH / 8]; /* one bit a level: set for an object */
    char capture[JSON_CAPTURE];
};

void json_init(struct json *j, int (*on_event)(void *, const struct json_event *), void *arg);
/* 0, -1 where the bytes are no JSON (json_fault says why, and offset where), or what on_event
 * returned. Once it is not 0 it stays so, and further bytes are not looked at. */
int json_feed(struct json *j, const char *bytes, size_t n);
/* 0 where exactly one complete value was fed. A number at the top is reported only now. */
int json_finish(struct json *j);
/* A constant text, or NULL where nothing is wrong. */
const char *json_fault(const struct json *j);
/* Whether a string value (no key) has begun and not ended; then e is that string so far. */
bool json_partial(const struct json *j, struct json_event *e);

/* Writes to `to` what the inside of a JSON string (valid, without its quotes) stands for, and
 * returns where that ends: never more bytes than `inside` has. Half of a surrogate pair is U+FFFD,
 * and sets *lone where lone is not NULL. */
char *json_unescape(char *to, struct slice inside, bool *lone);
/* Appends text as a JSON string, quotes included. Bytes that are no UTF-8 become U+FFFD. */
void json_quote(struct buf *out, struct slice text);
/* Whether eight bytes stand in a string as they are: they are ASCII and neither control characters,
 * quotes nor backslashes. */
static inline bool json_plain(uint64_t w)
{
    const uint64_t ones = 0x0101010101010101u, tops = 0x8080808080808080u;
    uint64_t quote = w ^ ones * '"', slash = w ^ ones * '\\';
    return ((w | (w - ones * 0x20) | (quote - ones) | (slash - ones)) & tops) == 0;
}

#endif
