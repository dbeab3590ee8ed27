/* HTTP/1.x messages out of bytes, by http_parser; no other file knows it. http_parser is lenient
 * as Debian builds it, so every head and every line of chunk framing is checked here first, and
 * what RFC 9112 forbids is refused: bare LF or CR, NUL, space before the colon, obs-fold, names
 * that are no tokens, Transfer-Encoding twice, with Content-Length, in HTTP/1.0, or other than
 * "chunked", differing or malformed Content-Length, no Host or two in HTTP/1.1, lax chunk sizes
 * and extensions.
 *
 * Bytes may arrive in any split. The head is copied into the caller's arena, so its slices
 * outlive the bytes that were fed; body slices are borrowed for the length of the callback. */
#ifndef TOLLGATE_PARSE_H
#define TOLLGATE_PARSE_H

#include "arena.h"
#include "message.h"

struct parse_limits {
    size_t head;     /* bytes of the whole head, start line included */
    size_t url;      /* bytes of the request target */
    uint32_t fields; /* number of header fields */
};

/* A fault is the status to answer: 400, 414, 417 (an expectation that is not known), 431, 501
 * (CONNECT, a transfer coding that is not known), 505. Every fault of a response is a 502.
 * parser_fault has a sentence for the log. */
struct parser;

struct parse_events {
    /* The head is complete. The message is in the struct given to parser_next_*. Returning
     * non-zero stops parsing behind the head (parser_feed returns what it consumed; the next
     * call goes on with the body). */
    int (*on_head)(void *arg);
    /* A piece of the body, decoded from its framing; returning non-zero stops behind it. */
    int (*on_body)(void *arg, struct slice piece);
    /* The message is complete. Parsing always stops here; the callback may call parser_next_*.
     * Where on_head or on_body has stopped at what is the message's end, the next parser_feed
     * calls this, with n == 0 too. */
    void (*on_end)(void *arg);
};

struct parser *parser_new_request(const struct parse_limits *limits,
                                  const struct parse_events *events, void *arg);
struct parser *parser_new_response(const struct parse_limits *limits,
                                   const struct parse_events *events, void *arg);
void parser_free(struct parser *p);

/* Ready for the next message, which will be parsed into `out` with `arena`; both are borrowed
 * until on_head, from when on `out` is the caller's to change. For a response, `method` is that of
 * the request it answers (no body after HEAD). After an interim (1xx) response on_end is called as
 * for any other and the caller asks for the next one; of more than 64 in a row the next is a 502.
 */
void parser_next_request(struct parser *p, struct request *out, struct arena *arena);
void parser_next_response(struct parser *p, struct response *out, struct arena *arena,
                          struct slice method);

/* Parses from bytes, between parser_next_* and on_end (else it consumes nothing); sets
 * *consumed. Returns 0, or a status as above after which the parser can only be freed. It stops
 * early at the end of a message and where a callback returned non-zero. Empty lines before a
 * request line are skipped (RFC 9112, section 2.2), at most 4 of them. The start line may hold
 * the target that limits.url allows and a method of 64 bytes; a longer one is a 414 without
 * waiting for its end. */
int parser_feed(struct parser *p, const char *bytes, size_t n, size_t *consumed);
/* The peer closed. Returns 0 where that is a proper end (between messages, or of a body framed
 * by close, for which on_end is called), else 400 or 502: the message is truncated. */
int parser_eof(struct parser *p);
/* A sentence about the last fault; static text. */
const char *parser_fault(const struct parser *p);
/* True from the first byte of a message until its end. */
bool parser_busy(const struct parser *p);

#endif
