/* See access_format.h. */
#include "access_format.h"

#include <math.h>
#include <stdio.h>

#include "chars.h"

/* The format of Apache's httpd, with the id of the key for a user. */
#define COMBINED                                                                                   \
    "${client} - ${consumer} ${time_clf} \"${method} ${path} ${protocol}\" ${status} "             \
    "${bytes_out} \"${header:referer}\" \"${header:user-agent}\""

static const char *const names[] = {
#define X(id, name, help) name,
    ACCESS_FIELDS(X)
#undef X
};

/* Fields of a request that hold secrets. */
static const char *const secret[] = { "authorization", "proxy-authorization",
                                      "cookie",        "x-api-key",
                                      "api-key",       "x-goog-api-key",
                                      "set-cookie",    "idempotency-key" };

/* --- formats --- */

static int header_part(struct slice name, struct access_part *part, struct buf *fault)
{
    bool token = name.n > 0;
    for (size_t i = 0; i < name.n; i++)
        token = token && char_is(name.p[i], CHAR_TOKEN);
    if (!token) {
        buf_printf(fault, "${header:%.*s}: is no name of a header field", (int)name.n, name.p);
        return -1;
    }
    for (size_t i = 0; i < sizeof secret / sizeof *secret; i++) {
        if (slice_ieq(name, slice_of(secret[i]))) {
            buf_printf(fault, "${header:%s} may hold a credential, which is never logged",
                       secret[i]);
            return -1;
        }
    }
    *part = (struct access_part){ ACCESS_HEADER, name };
    return 0;
}

static int field_part(struct slice name, struct access_part *part, struct buf *fault)
{
    const struct slice header = SLICE("header:");
    if (slice_starts(name, header))
        return header_part((struct slice){ name.p + header.n, name.n - header.n }, part, fault);
    for (int i = 0; i < ACCESS_HEADER; i++) {
        if (slice_eq(name, slice_of(names[i]))) {
            *part = (struct access_part){ (enum access_field)i, { NULL, 0 } };
            return 0;
        }
    }
    buf_printf(fault, "there is no field ${%.*s}; there are:", (int)name.n, name.p);
    for (int i = 0; i <= ACCESS_HEADER; i++)
        buf_printf(fault, " %s", names[i]);
    return -1;
}

static bool has_control(struct slice text)
{
    for (size_t i = 0; i < text.n; i++) {
        if ((unsigned char)text.p[i] < 0x20 || text.p[i] == 0x7f)
            return true;
    }
    return false;
}

int access_format_parse(struct arena *a, struct slice text, struct access_format *out,
                        struct buf *fault)
{
    *out = (struct access_format){ .json = slice_eq(text, SLICE("json")) };
    if (out->json)
        return 0;
    if (slice_eq(text, SLICE("combined")))
        text = SLICE(COMBINED);
    if (has_control(text)) {
        buf_add_text(fault, "a line must not hold control characters");
        return -1;
    }
    out->parts = arena_alloc(a, (text.n + 1) * sizeof *out->parts);
    while (text.n > 0) {
        const char *at = memmem(text.p, text.n, "${", 2), *end;
        size_t n = at != NULL ? (size_t)(at - text.p) : text.n;
        if (n > 0)
            out->parts[out->n++] = (struct access_part){ ACCESS_LITERAL, { text.p, n } };
        text = (struct slice){ text.p + n, text.n - n };
        if (text.n == 0)
            break;
        end = memchr(text.p, '}', text.n);
        if (end == NULL) {
            buf_add_text(fault, "a ${ has no }");
            return -1;
        }
        struct slice name = { text.p + 2, (size_t)(end - text.p) - 2 };
        if (field_part(name, &out->parts[out->n++], fault) != 0)
            return -1;
        text = (struct slice){ end + 1, text.n - (size_t)(end + 1 - text.p) };
    }
    return 0;
}

void access_format_value(struct buf *out, struct slice value)
{
    if (value.n == 0) {
        buf_add_text(out, "-");
        return;
    }
    for (size_t i = 0; i < value.n; i++) {
        unsigned char c = (unsigned char)value.p[i];
        if (c < 0x20 || c >= 0x7f || c == '"' || c == '\\')
            buf_printf(out, "\\x%02x", c);
        else
            buf_add(out, value.p + i, 1);
    }
}

/* --- which lines are kept --- */

uint64_t access_share(double share)
{
    if (share >= 1)
        return UINT64_MAX;
    return share > 0 ? (uint64_t)(share * 0x1p64) : 0;
}

/* FNV-1a, and a finaliser (of MurmurHash3) since its high bits are poor for short texts. */
static uint64_t hash(struct slice id)
{
    uint64_t h = 0xcbf29ce484222325;
    for (size_t i = 0; i < id.n; i++)
        h = (h ^ (unsigned char)id.p[i]) * 0x100000001b3;
    h = (h ^ (h >> 33)) * 0xff51afd7ed558ccd;
    h = (h ^ (h >> 33)) * 0xc4ceb9fe1a85ec53;
    return h ^ (h >> 33);
}

static bool fits(const struct access_rule *r, const char *route, int status, bool well)
{
    bool found = r->nroutes == 0;
    for (uint32_t i = 0; i < r->nroutes && !found; i++)
        found = route != NULL && strcmp(r->routes[i], route) == 0;
    if (!found || r->nstatuses == 0)
        return found && well;
    for (uint32_t i = 0; i < r->nstatuses; i++) {
        if (status >= r->statuses[i].low && status <= r->statuses[i].high)
            return true;
    }
    return false;
}

bool access_keeps(const struct access_rules *rules, const char *route, int status, bool well,
                  struct slice id)
{
    for (uint32_t i = 0; i < rules->n; i++) {
        const struct access_rule *r = &rules->v[i];
        if (fits(r, route, status, well))
            return r->keep == UINT64_MAX || (r->keep > 0 && hash(id) < r->keep);
    }
    return true;
}
