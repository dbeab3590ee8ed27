/* URLs that plugins ask for, and where redirects lead to. Unlike the URLs of targets they have a
 * query, and their path goes out as it was written. */
#ifndef TOLLGATE_FETCH_URL_H
#define TOLLGATE_FETCH_URL_H

#include "url.h"

struct fetch_url {
    struct url at;       /* where to; its path is empty */
    struct slice target; /* path and query as they are sent; begins with '/' */
};

/* Parses "http://host[:port][/path][?query]", the same with https://, or
 * "unix:/socket[:/path[?query]]". A fragment is dropped. All slices are in the arena. NULL, or what
 * is wrong (static text). */
const char *fetch_url_parse(struct arena *a, struct slice text, struct fetch_url *out);
/* Resolves a reference (RFC 3986, section 5.2). It cannot lead to a Unix socket that `base` is not
 * on. Bytes that no URL may hold but that servers send (spaces, UTF-8) are percent-encoded. */
const char *fetch_url_resolve(struct arena *a, const struct fetch_url *base, struct slice reference,
                              struct fetch_url *out);
/* Whether two URLs have one origin: the same scheme, host and port, or socket. */
bool fetch_url_same_origin(const struct fetch_url *a, const struct fetch_url *b);
/* The URL as text. */
struct slice fetch_url_text(struct arena *a, const struct fetch_url *url);
/* Appends name=value to a query, both percent-encoded but for unreserved characters. */
struct slice fetch_url_pair(struct arena *a, struct slice name, struct slice value);

#endif
