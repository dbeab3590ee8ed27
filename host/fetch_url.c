/* See fetch_url.h. */
#include "fetch_url.h"

#include "chars.h"

static struct slice without_fragment(struct slice s)
{
    const char *hash = s.n > 0 ? memchr(s.p, '#', s.n) : NULL;
    return hash != NULL ? (struct slice){ s.p, (size_t)(hash - s.p) } : s;
}

static size_t find(struct slice s, const char *any)
{
    size_t n = 0;
    while (n < s.n && (s.p[n] == '\0' || strchr(any, s.p[n]) == NULL))
        n++;
    return n;
}

static struct slice from(struct slice s, size_t n)
{
    return (struct slice){ s.p + n, s.n - n };
}

/* --- the target --- */

static bool escaped(struct slice s, size_t i)
{
    return s.n - i >= 3 && s.p[i] == '%' && char_is(s.p[i + 1], CHAR_HEX) &&
           char_is(s.p[i + 2], CHAR_HEX);
}

static const char *check_target(struct slice target)
{
    unsigned allowed = CHAR_PATH;
    for (size_t i = 0; i < target.n; i++) {
        char c = target.p[i];
        if (c == '?')
            allowed = CHAR_PATH | CHAR_QUERY;
        if (c == '%' && !escaped(target, i))
            return "a '%' must begin a percent-encoded byte (%25 is the character itself)";
        if (c != '%' && c != '?' && !char_is(c, allowed))
            return "the path or the query holds a character that must be percent-encoded";
    }
    return NULL;
}

/* Path and query from what stands behind the authority, which may be empty. */
static const char *take_target(struct arena *a, struct slice rest, struct fetch_url *out)
{
    out->target = rest;
    if (rest.n == 0)
        out->target = SLICE("/");
    else if (rest.p[0] == '?')
        out->target = arena_printf(a, "/%.*s", (int)rest.n, rest.p);
    return check_target(out->target);
}

/* --- parsing --- */

/* "unix:/socket:/path", as nginx has it. */
static const char *parse_unix(struct arena *a, struct slice text, struct fetch_url *out)
{
    size_t end = 5;
    while (end < text.n && !(text.p[end] == ':' && (end + 1 == text.n || text.p[end + 1] == '/')))
        end++;
    const char *wrong = url_parse(a, (struct slice){ text.p, end }, &out->at);
    if (wrong != NULL)
        return wrong;
    return take_target(a, end < text.n ? from(text, end + 1) : SLICE(""), out);
}

const char *fetch_url_parse(struct arena *a, struct slice text, struct fetch_url *out)
{
    *out = (struct fetch_url){ .target = SLICE("/") };
    text = arena_dup(a, without_fragment(text));
    if (text.n >= 5 && strncasecmp(text.p, "unix:", 5) == 0)
        return parse_unix(a, text, out);
    size_t scheme = find(text, ":"), start = scheme + 3 < text.n ? scheme + 3 : text.n;
    size_t end = start + find(from(text, start), "/?");
    const char *wrong = url_parse(a, (struct slice){ text.p, end }, &out->at);
    return wrong != NULL ? wrong : take_target(a, from(text, end), out);
}

/* --- redirects --- */

static bool has_scheme(struct slice ref)
{
    size_t n = find(ref, ":/?#");
    return n > 0 && n < ref.n && ref.p[n] == ':';
}

/* RFC 3986, section 5.2.4, in place; the path begins with '/'. Returns its length. */
static size_t remove_dots(char *path, size_t n)
{
    size_t to = 0;
    for (size_t i = 0; i < n;) {
        size_t end = i + 1;
        while (end < n && path[end] != '/')
            end++;
        struct slice segment = { path + i, end - i };
        bool dot = slice_eq(segment, SLICE("/.")), dots = slice_eq(segment, SLICE("/.."));
        if (dots)
            while (to > 0 && path[--to] != '/') {
            }
        if (!dot && !dots) {
            memmove(path + to, segment.p, segment.n);
            to += segment.n;
        } else if (end == n) {
            path[to++] = '/';
        }
        i = end;
    }
    return to;
}

/* The base's path up to its last slash, and the reference behind it. */
static struct slice merge(struct arena *a, struct slice base, struct slice ref)
{
    size_t path = find(base, "?"), query = find(ref, "?");
    if (ref.n > 0 && ref.p[0] == '?')
        return arena_printf(a, "%.*s%.*s", (int)path, base.p, (int)ref.n, ref.p);
    while (path > 0 && base.p[path - 1] != '/')
        path--;
    if (ref.p[0] == '/')
        path = 0;
    struct slice merged = arena_printf(a, "%.*s%.*s", (int)path, base.p, (int)query, ref.p);
    size_t n = remove_dots((char *)merged.p, merged.n);
    return arena_printf(a, "%.*s%.*s", (int)n, merged.p, (int)(ref.n - query), ref.p + query);
}

static struct slice encode(struct arena *a, struct slice s, unsigned plain, bool keep_escapes)
{
    static const char digits[] = "0123456789ABCDEF";
    char *out = arena_alloc(a, s.n * 3 + 1);
    size_t n = 0;
    for (size_t i = 0; i < s.n; i++) {
        unsigned char c = (unsigned char)s.p[i];
        if (char_is((char)c, plain) || (keep_escapes && escaped(s, i))) {
            out[n++] = (char)c;
            continue;
        }
        out[n++] = '%';
        out[n++] = digits[c >> 4];
        out[n++] = digits[c & 15];
    }
    out[n] = '\0';
    return (struct slice){ out, n };
}

const char *fetch_url_resolve(struct arena *a, const struct fetch_url *base, struct slice reference,
                              struct fetch_url *out)
{
    struct slice ref = encode(a, without_fragment(reference), CHAR_PATH | CHAR_QUERY, true);
    if (has_scheme(ref)) {
        if (strncasecmp(ref.p, "http:", 5) != 0 && strncasecmp(ref.p, "https:", 6) != 0)
            return "a redirect leads to another scheme than http or https";
        return fetch_url_parse(a, ref, out);
    }
    if (slice_starts(ref, SLICE("//"))) {
        const char *scheme = base->at.tls ? "https" : "http";
        return fetch_url_parse(a, arena_printf(a, "%s:%.*s", scheme, (int)ref.n, ref.p), out);
    }
    *out = *base;
    if (ref.n > 0)
        out->target = merge(a, base->target, ref);
    return check_target(out->target);
}

bool fetch_url_same_origin(const struct fetch_url *a, const struct fetch_url *b)
{
    if (a->at.unix_path.p != NULL || b->at.unix_path.p != NULL)
        return a->at.unix_path.p != NULL && b->at.unix_path.p != NULL &&
               slice_eq(a->at.unix_path, b->at.unix_path);
    return a->at.tls == b->at.tls && a->at.port == b->at.port && slice_ieq(a->at.host, b->at.host);
}

struct slice fetch_url_text(struct arena *a, const struct fetch_url *url)
{
    struct slice to = url->at.unix_path.p != NULL ? url->at.unix_path : url->at.authority;
    const char *scheme = url->at.tls ? "https://" : "http://";
    if (url->at.unix_path.p != NULL)
        return arena_printf(a, "unix:%.*s:%.*s", (int)to.n, to.p, (int)url->target.n,
                            url->target.p);
    return arena_printf(a, "%s%.*s%.*s", scheme, (int)to.n, to.p, (int)url->target.n,
                        url->target.p);
}

struct slice fetch_url_pair(struct arena *a, struct slice name, struct slice value)
{
    struct slice k = encode(a, name, CHAR_UNRESERVED, false);
    struct slice v = encode(a, value, CHAR_UNRESERVED, false);
    return arena_printf(a, "%.*s=%.*s", (int)k.n, k.p, (int)v.n, v.p);
}
