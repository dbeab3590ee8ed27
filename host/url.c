/* See url.h. A path is read once; only where a byte calls for it is it decoded and put together
 * anew, in the order of RFC 3986, section 6.2.2: percent encoding first, so that encoded dots
 * are dots, then segments. */
#include "url.h"

#include <arpa/inet.h>
#include <sys/un.h>

#include "chars.h"

enum scan { SCAN_CLEAN, SCAN_CHANGE, SCAN_BAD };

static enum scan scan_path(struct slice path)
{
    enum scan found = SCAN_CLEAN;
    for (size_t i = 0; i < path.n; i++) {
        char c = path.p[i];
        if (c == '%')
            found = SCAN_CHANGE;
        else if (!char_is(c, CHAR_PATH))
            return SCAN_BAD;
        else if (c == '/' && i + 1 < path.n && (path.p[i + 1] == '/' || path.p[i + 1] == '.'))
            found = SCAN_CHANGE;
    }
    return found;
}

/* Decodes what may be decoded; returns the length, at most path.n, or -1. */
static long decode(struct slice path, char *out)
{
    static const char digits[] = "0123456789ABCDEF";
    char *to = out;
    for (size_t i = 0; i < path.n; i++) {
        char c = path.p[i];
        if (c != '%') {
            *to++ = c;
            continue;
        }
        if (path.n - i < 3 || !char_is(path.p[i + 1], CHAR_HEX) ||
            !char_is(path.p[i + 2], CHAR_HEX))
            return -1;
        unsigned value = char_hex(path.p[i + 1]) << 4 | char_hex(path.p[i + 2]);
        if (value < 0x20 || value == 0x7f || value == '\\')
            return -1;
        if (char_is((char)value, CHAR_UNRESERVED)) {
            *to++ = (char)value;
        } else {
            *to++ = '%';
            *to++ = digits[value >> 4];
            *to++ = digits[value & 15];
        }
        i += 2;
    }
    return to - out;
}

/* ".;a" and "..;a": servlet containers drop parameters before they resolve dots, so what we
 * leave as a name would climb there. */
static bool dots_with_parameter(struct slice segment)
{
    size_t dots = 0;
    while (dots < segment.n && segment.p[dots] == '.')
        dots++;
    struct slice rest = { segment.p + dots, segment.n - dots };
    return (dots == 1 || dots == 2) &&
           (slice_starts(rest, SLICE(";")) || slice_starts(rest, SLICE("%3B")));
}

/* Resolves segments in place; path begins with '/'. Returns the length or -1. */
static long resolve(char *path, size_t n)
{
    size_t to = 0, i = 0; /* path[0..to) ends without a slash; i is at a slash */
    while (i < n) {
        size_t start = i + 1, end = start;
        while (end < n && path[end] != '/')
            end++;
        struct slice segment = { path + start, end - start };
        bool last = end == n;
        i = end;
        if (dots_with_parameter(segment))
            return -1;
        if (slice_eq(segment, SLICE(".."))) {
            if (to == 0)
                return -1;
            while (path[--to] != '/') {
            }
        } else if (segment.n > 0 && !slice_eq(segment, SLICE("."))) {
            path[to++] = '/';
            memmove(path + to, segment.p, segment.n);
            to += segment.n;
            continue;
        }
        if (last)
            path[to++] = '/';
    }
    return (long)to;
}

int url_normalise(struct arena *a, struct slice path, struct slice *out)
{
    if (path.n == 0 || path.p[0] != '/')
        return -1;
    enum scan found = scan_path(path);
    if (found == SCAN_BAD)
        return -1;
    if (found == SCAN_CLEAN) {
        *out = path;
        return 0;
    }
    char *to = arena_alloc(a, path.n);
    long n = decode(path, to);
    if (n >= 0)
        n = resolve(to, (size_t)n);
    if (n < 0)
        return -1;
    *out = (struct slice){ to, (size_t)n };
    return 0;
}

static bool ipv6_valid(struct slice text)
{
    char copy[INET6_ADDRSTRLEN];
    struct in6_addr address;
    if (text.n >= sizeof copy || memchr(text.p, '\0', text.n) != NULL)
        return false;
    memcpy(copy, text.p, text.n);
    copy[text.n] = '\0';
    return inet_pton(AF_INET6, copy, &address) == 1;
}

/* The length of the host at the head of text, brackets included, or 0 where it is not valid. */
static size_t host_length(struct slice text)
{
    if (text.n > 0 && text.p[0] == '[') {
        const char *end = memchr(text.p, ']', text.n);
        if (end == NULL || !ipv6_valid((struct slice){ text.p + 1, (size_t)(end - text.p - 1) }))
            return 0;
        return (size_t)(end - text.p) + 1;
    }
    size_t n = 0;
    while (n < text.n && char_is(text.p[n], CHAR_UNRESERVED))
        n++;
    return n;
}

bool url_authority(struct slice text, struct slice *host, int *port)
{
    size_t n = host_length(text);
    if (n == 0)
        return false;
    *host = text.p[0] == '[' ? (struct slice){ text.p + 1, n - 2 } : (struct slice){ text.p, n };
    *port = 0;
    if (n == text.n)
        return true;
    if (text.p[n++] != ':')
        return false;
    /* An empty port is the default one (RFC 3986, section 3.2.3); a written 0 is none at all. */
    for (size_t i = n; i < text.n; i++) {
        if (!char_is(text.p[i], CHAR_DIGIT))
            return false;
        *port = *port * 10 + (text.p[i] - '0');
        if (*port > 65535)
            return false;
    }
    return n == text.n || *port > 0;
}

static const char *parse_unix(struct slice path, struct url *out)
{
    if (path.n == 0 || path.p[0] != '/')
        return "unix: needs an absolute path";
    if (path.n >= sizeof((struct sockaddr_un *)0)->sun_path)
        return "the path of the socket is too long";
    for (size_t i = 0; i < path.n; i++)
        if ((unsigned char)path.p[i] < 0x20 || path.p[i] == 0x7f)
            return "the path of the socket holds a control character";
    out->unix_path = path;
    out->host = out->authority = SLICE("localhost");
    return NULL;
}

static const char *parse_path(struct arena *a, struct slice path, struct slice *out)
{
    if (path.n == 0)
        return NULL;
    if (memchr(path.p, '?', path.n) != NULL || memchr(path.p, '#', path.n) != NULL)
        return "a query or fragment does not belong here";
    if (url_normalise(a, path, out) != 0)
        return "the path is not valid";
    while (out->n > 0 && out->p[out->n - 1] == '/')
        out->n--;
    return NULL;
}

static size_t authority_end(struct slice s)
{
    size_t n = 0;
    while (n < s.n && s.p[n] != '/' && s.p[n] != '?' && s.p[n] != '#')
        n++;
    return n;
}

static bool take(struct slice *s, struct slice prefix)
{
    if (s->n < prefix.n || !slice_ieq((struct slice){ s->p, prefix.n }, prefix))
        return false;
    s->p += prefix.n;
    s->n -= prefix.n;
    return true;
}

const char *url_parse(struct arena *a, struct slice text, struct url *out)
{
    *out = (struct url){ .path = SLICE("") };
    struct slice copy = arena_dup(a, text), rest = copy;
    if (take(&rest, SLICE("unix:")))
        return parse_unix(rest, out);
    out->tls = take(&rest, SLICE("https://"));
    if (!out->tls && !take(&rest, SLICE("http://")))
        return "only http://, https:// and unix: are known";

    struct slice authority = { rest.p, authority_end(rest) };
    if (authority.n > 0 && memchr(authority.p, '@', authority.n) != NULL)
        return "user information does not belong here";
    char *lower = (char *)copy.p + (authority.p - copy.p);
    for (size_t i = 0; i < authority.n; i++)
        if (lower[i] >= 'A' && lower[i] <= 'Z')
            lower[i] |= 0x20;
    if (!url_authority(authority, &out->host, &out->port))
        return "the host or the port is not valid";

    int usual = out->tls ? 443 : 80;
    if (out->port == 0)
        out->port = usual;
    size_t host_n = out->host.n + (authority.p[0] == '[' ? 2 : 0);
    out->authority = (struct slice){ authority.p, host_n };
    if (out->port != usual)
        out->authority = arena_printf(a, "%.*s:%d", (int)host_n, authority.p, out->port);
    return parse_path(a, (struct slice){ rest.p + authority.n, rest.n - authority.n }, &out->path);
}
