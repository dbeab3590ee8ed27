/* Header fields of one message: an ordered list of slices that live in the message's arena.
 * Names compare without case (RFC 9110, section 5.1); order and repetition are kept. */
#ifndef TOLLGATE_HEADERS_H
#define TOLLGATE_HEADERS_H

#include <stdint.h>

#include "arena.h"
#include "slice.h"

/* Fields that the host itself reads; found once when the field is added, so that a look-up compares
 * numbers. HEADER_OTHER is every other name. */
enum header_id {
    HEADER_OTHER,
    HEADER_ACCEPT_ENCODING,
    HEADER_AUTHORIZATION,
    HEADER_CACHE_STATUS,
    HEADER_CONNECTION,
    HEADER_CONTENT_ENCODING,
    HEADER_CONTENT_LENGTH,
    HEADER_CONTENT_TYPE,
    HEADER_DATE,
    HEADER_EXPECT,
    HEADER_FORWARDED,
    HEADER_HOST,
    HEADER_KEEP_ALIVE,
    HEADER_PROXY_AUTHENTICATE,
    HEADER_PROXY_AUTHORIZATION,
    HEADER_PROXY_CONNECTION,
    HEADER_RETRY_AFTER,
    HEADER_SERVER,
    HEADER_TE,
    HEADER_TRACEPARENT,
    HEADER_TRACESTATE,
    HEADER_TRAILER,
    HEADER_TRANSFER_ENCODING,
    HEADER_UPGRADE,
    HEADER_VIA,
    HEADER_X_API_KEY,
    HEADER_X_FORWARDED_FOR,
    HEADER_X_FORWARDED_HOST,
    HEADER_X_FORWARDED_PROTO,
    HEADER_X_REQUEST_ID,
    HEADER_COUNT
};

struct header {
    struct slice name, value; /* value without surrounding OWS */
    enum header_id id;
};

struct headers {
    struct header *v;
    uint32_t n, cap;
    struct arena *arena; /* borrowed; holds v and whatever is copied in */
};

/* The id of a name, without regard to case. */
enum header_id header_id(struct slice name);
/* True where name is a token and may be a field name (RFC 9110, section 5.6.2). */
bool header_name_valid(struct slice name);
/* True where value has no CR, LF, NUL or other control character but HTAB (RFC 9110, section
 * 5.5). */
bool header_value_valid(struct slice value);

/* The next member of a comma-separated list, trimmed, or false at its end; empty members are
 * passed over (RFC 9110, section 5.6.1). For lists without quoted strings. */
bool header_list_next(struct slice *rest, struct slice *member);

void headers_init(struct headers *h, struct arena *arena);
/* Makes room for n fields at once. */
void headers_reserve(struct headers *h, uint32_t n);
/* Adds a field; the slices are borrowed and must live as long as the arena. */
void headers_add(struct headers *h, struct slice name, struct slice value);
/* The first value, or a slice with p == NULL where there is none. */
struct slice headers_get(const struct headers *h, struct slice name);
struct slice headers_get_id(const struct headers *h, enum header_id id);
/* Position of the first field of that name at or behind `from`, or -1. */
int headers_find(const struct headers *h, struct slice name, uint32_t from);
/* All fields of that name become one with this value, in the place of the first; added where
 * there is none. */
void headers_set(struct headers *h, struct slice name, struct slice value);
/* Removes all fields of that name; returns how many there were. */
int headers_remove(struct headers *h, struct slice name);
int headers_remove_id(struct headers *h, enum header_id id);
void headers_remove_at(struct headers *h, uint32_t i);
/* True where a list-valued field (Connection, Transfer-Encoding, …) has this member in any of
 * its lines; members are separated by commas and compared without case (RFC 9110, section
 * 5.6.1). */
bool headers_has_token(const struct headers *h, enum header_id id, struct slice token);
/* Removes what belongs to one connection only: Connection and every field that it names,
 * Keep-Alive, Proxy-Connection, TE, Trailer, Transfer-Encoding, Upgrade (RFC 9110, section
 * 7.6.1), and Proxy-Authenticate/-Authorization. Fields that the host itself reads (those with
 * an id: Host, Content-Length, Authorization, Via, …) and X-Forwarded-* are not removed for
 * being named, else a client could strip what framing, routing or the next hop relies on. */
void headers_remove_hop_by_hop(struct headers *h);

#endif
