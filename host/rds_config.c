/* The address of a Redis as text. */
#include <stdio.h>

#include "rds.h"

enum { REDIS_PORT = 6379, REDIS_DATABASES = 1 << 20 };

static int hex(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Percent-decodes into out. False where it does not fit, is broken, or holds NUL. */
static bool decode(struct slice in, char *out, size_t size)
{
    size_t n = 0;
    for (size_t i = 0; i < in.n; i++) {
        int c = (unsigned char)in.p[i];
        if (c == '%') {
            int high = i + 2 < in.n ? hex(in.p[i + 1]) : -1;
            int low = high >= 0 ? hex(in.p[i + 2]) : -1;
            if (low < 0)
                return false;
            c = high * 16 + low;
            i += 2;
        }
        if (c == 0 || n + 1 >= size)
            return false;
        out[n++] = (char)c;
    }
    out[n] = '\0';
    return true;
}

static bool copy(struct slice in, char *out, size_t size)
{
    if (in.n == 0 || in.n >= size || memchr(in.p, '\0', in.n) != NULL)
        return false;
    memcpy(out, in.p, in.n);
    out[in.n] = '\0';
    return true;
}

static bool number(struct slice in, int max, int *out)
{
    int n = 0;
    if (in.n == 0 || in.n > 8)
        return false;
    for (size_t i = 0; i < in.n; i++) {
        if (in.p[i] < '0' || in.p[i] > '9')
            return false;
        n = n * 10 + (in.p[i] - '0');
    }
    *out = n;
    return n <= max;
}

/* Cuts s at the first (or last) c: returns what stands before it; s keeps what stands behind.
 * Without c, all of s is left where it was and the answer has no bytes (p NULL). */
static struct slice cut(struct slice *s, char c, bool last)
{
    const char *at = s->n == 0 ? NULL : last ? memrchr(s->p, c, s->n) : memchr(s->p, c, s->n);
    if (at == NULL)
        return (struct slice){ NULL, 0 };
    struct slice before = { s->p, (size_t)(at - s->p) };
    s->n -= before.n + 1;
    s->p = at + 1;
    return before;
}

/* user[:password] */
static const char *parse_user(struct slice user, struct rds_config *out)
{
    struct slice password = user;
    struct slice name = cut(&password, ':', false);
    if (name.p == NULL)
        return "a user needs a password: user:password@host";
    if (!decode(name, out->user, sizeof out->user) ||
        !decode(password, out->password, sizeof out->password))
        return "the user or the password is too long or not percent-encoded";
    if (name.n > 0 && password.n == 0)
        return "the password is empty";
    return NULL;
}

static const char *parse_query(struct slice query, struct rds_config *out)
{
    if (query.n == 0)
        return NULL;
    if (!slice_starts(query, SLICE("db=")) ||
        !number((struct slice){ query.p + 3, query.n - 3 }, REDIS_DATABASES, &out->database))
        return "only db=NUMBER may stand behind the question mark";
    return NULL;
}

static const char *parse_host(struct slice host, struct rds_config *out)
{
    struct slice port = { NULL, 0 };
    if (host.n > 0 && host.p[0] == '[') {
        port = (struct slice){ host.p + 1, host.n - 1 };
        host = cut(&port, ']', false);
        if (host.p == NULL || (port.n > 0 && port.p[0] != ':'))
            return "a bracket is not closed";
    } else {
        struct slice rest = host;
        struct slice before = cut(&rest, ':', false);
        if (before.p != NULL) {
            port = (struct slice){ rest.p - 1, rest.n + 1 };
            host = before;
        }
    }
    out->port = REDIS_PORT;
    if (port.n > 0 &&
        (!number((struct slice){ port.p + 1, port.n - 1 }, 65535, &out->port) || out->port == 0))
        return "the port must be between 1 and 65535";
    return copy(host, out->host, sizeof out->host) ? NULL : "the host is missing or too long";
}

static const char *parse_tcp(struct slice authority, struct slice query, struct rds_config *out)
{
    struct slice database = authority;
    struct slice host = cut(&database, '/', false);
    if (host.p == NULL) {
        host = authority;
        database.n = 0;
    }
    if (database.n > 0 && !number(database, REDIS_DATABASES, &out->database))
        return "the database must be a number";
    const char *wrong = parse_query(query, out);
    return wrong != NULL ? wrong : parse_host(host, out);
}

static const char *parse_unix(struct slice path, struct slice query, struct rds_config *out)
{
    if (path.n == 0 || path.p[0] != '/' || !copy(path, out->path, sizeof out->path))
        return "the path of the socket must be absolute and shorter than 108 bytes";
    return parse_query(query, out);
}

/* What stands behind the scheme. */
static const char *parse_rest(struct slice rest, bool tcp, struct rds_config *out)
{
    const char *wrong = NULL;
    /* A password may hold an "@" or "?" that nobody encoded; a host cannot, and a path begins with
     * "/". */
    struct slice user = { NULL, 0 };
    if (tcp || (rest.n > 0 && rest.p[0] != '/'))
        user = cut(&rest, '@', true);
    if (user.p != NULL)
        wrong = parse_user(user, out);
    if (wrong != NULL)
        return wrong;
    struct slice query = rest;
    struct slice before = cut(&query, '?', true);
    if (before.p != NULL)
        rest = before;
    else
        query.n = 0;
    return tcp ? parse_tcp(rest, query, out) : parse_unix(rest, query, out);
}

const char *rds_config_parse(struct slice url, struct rds_config *out)
{
    memset(out, 0, sizeof *out);
    out->deadline_ms = 500;
    out->connect_ms = 1000;
    out->hang_ms = 2000;
    out->backoff_min_ms = 50;
    out->backoff_max_ms = 2000;
    const struct slice tcp = SLICE("redis://"), tls = SLICE("rediss://");
    const struct slice unixes[] = { SLICE("redis+unix://"), SLICE("unix://") };
    out->secure = slice_starts(url, tls);
    if (out->secure)
        return parse_rest((struct slice){ url.p + tls.n, url.n - tls.n }, true, out);
    if (slice_starts(url, tcp))
        return parse_rest((struct slice){ url.p + tcp.n, url.n - tcp.n }, true, out);
    for (int i = 0; i < 2; i++) {
        if (slice_starts(url, unixes[i]))
            return parse_rest((struct slice){ url.p + unixes[i].n, url.n - unixes[i].n }, false,
                              out);
    }
    return "it must begin with redis://, rediss://, redis+unix:// or unix://";
}

void rds_config_secure(struct rds_config *c, const struct tls_remote *peer)
{
    c->tls = peer->context;
    snprintf(c->server_name, sizeof c->server_name, "%.*s", (int)peer->name.n,
             peer->name.n > 0 ? peer->name.p : "");
}
