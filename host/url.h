/* Paths and targets: what routes match is normalised, and that is what goes upstream, so that no
 * spelling of a path gets around a route. */
#ifndef TOLLGATE_URL_H
#define TOLLGATE_URL_H

#include "arena.h"
#include "slice.h"

/* Normalises a path (RFC 3986, section 6.2.2): unreserved characters are decoded, hex digits of
 * what stays encoded are upper case, "." and ".." segments are resolved, encoded ones too,
 * repeated slashes become one. %2F stays encoded as it is data. Returns 0, or -1 for what no
 * path may hold: bad percent encoding, %00, control characters, a backslash (plain or encoded),
 * ".." above the root, a dot segment with a parameter ("..;", which some origins resolve), bytes
 * outside RFC 3986's pchar and '/' (a byte >= 0x80 is refused). The result lives in the arena,
 * or is `path` itself where nothing needs changing. */
int url_normalise(struct arena *a, struct slice path, struct slice *out);

/* Splits host[:port] (RFC 3986, section 3.2) of a Host field or a URL. The host is an IPv6
 * address in brackets or made of letters, digits, '-', '.', '_' and '~': the rest of reg-name
 * means nothing to DNS. *port is 0 where there is none. No user info. False where it is not
 * valid. */
bool url_authority(struct slice text, struct slice *host, int *port);

struct url {
    bool tls;
    struct slice host;      /* lower case, without brackets for IPv6; "localhost" with unix: */
    int port;               /* default by scheme */
    struct slice authority; /* as it stands in a Host field: the port only if not the default */
    struct slice path;      /* "" or begins with '/', normalised, without a trailing '/' */
    struct slice unix_path; /* of "unix:/path/to/socket", else p == NULL */
};

/* Parses an absolute http, https or unix: URL of a target. NULL, or what is wrong with it
 * (static text). No user info, query or fragment. */
const char *url_parse(struct arena *a, struct slice text, struct url *out);

#endif
