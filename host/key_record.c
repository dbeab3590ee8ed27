/* See key_record.h. The scanner's events fill the record directly; each member has a row in a
 * table that says of which kind it is and where it goes. */
#include "key_record.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>

#include "chars.h"
#include "json.h"

enum kind { TEXT, DIGEST, NUMBER, INTEGER, ROUTES, FLAG };

/* The order is that of the bits in `seen`. */
static const struct member {
    const char *name;
    enum kind kind;
    double min; /* of numbers */
    size_t offset;
} members[] = {
    { "id", TEXT, 0, offsetof(struct key_record, id) },
    { "secret_sha256", DIGEST, 0, 0 },
    { "tenant", TEXT, 0, offsetof(struct key_record, tenant) },
    { "plan", TEXT, 0, offsetof(struct key_record, plan) },
    { "rps", NUMBER, 0, offsetof(struct key_record, rps) },
    { "burst", NUMBER, 1, offsetof(struct key_record, burst) },
    { "monthly_tokens", INTEGER, 0, offsetof(struct key_record, monthly_tokens) },
    { "concurrency", INTEGER, 1, offsetof(struct key_record, concurrency) },
    { "routes", ROUTES, 0, 0 },
    { "disabled", FLAG, 0, offsetof(struct key_record, disabled) },
};
enum { MEMBERS = sizeof members / sizeof members[0], NAME_MAX_NEAR = 24, REQUIRED = 2 };

static const double WINDOW_MAX = 31 * 86400;        /* seconds in which a bucket must fill */
static const double INTEGER_MAX = 9007199254740991; /* 2^53 - 1 */

struct parser {
    struct key_record *r;
    struct arena *arena;
    struct buf *fault;
    const struct member *member; /* whose value comes next */
    unsigned seen;
    struct slice *routes;
    uint32_t capacity;
};

/* --- the nearest known name --- */

static int least(int a, int b)
{
    return a < b ? a : b;
}

/* Insertions, deletions, substitutions, and neighbours swapped, each 1 (optimal string
 * alignment). */
static int distance(struct slice a, struct slice b)
{
    int d[NAME_MAX_NEAR + 1][NAME_MAX_NEAR + 1];
    for (size_t i = 0; i <= a.n; i++) {
        for (size_t j = 0; j <= b.n; j++) {
            if (i == 0 || j == 0) {
                d[i][j] = (int)(i + j);
                continue;
            }
            bool same = tolower((unsigned char)a.p[i - 1]) == b.p[j - 1];
            d[i][j] = least(least(d[i - 1][j], d[i][j - 1]) + 1, d[i - 1][j - 1] + !same);
            if (i > 1 && j > 1 && tolower((unsigned char)a.p[i - 1]) == b.p[j - 2] &&
                tolower((unsigned char)a.p[i - 2]) == b.p[j - 1])
                d[i][j] = least(d[i][j], d[i - 2][j - 2] + 1);
        }
    }
    return d[a.n][b.n];
}

/* NULL where more than a third of the letters differ from all. */
static const char *nearest(struct slice name)
{
    const char *best = NULL;
    int least_so_far = NAME_MAX_NEAR;
    for (int i = 0; i < MEMBERS && name.n <= NAME_MAX_NEAR; i++) {
        struct slice known = slice_of(members[i].name);
        int d = distance(name, known), bound = (int)(name.n > known.n ? name.n : known.n) / 3;
        if (d <= (bound < 1 ? 1 : bound) && d < least_so_far) {
            least_so_far = d;
            best = members[i].name;
        }
    }
    return best;
}

/* --- members --- */

static int refuse(struct parser *p, const char *what)
{
    buf_printf(p->fault, "%s %s", p->member->name, what);
    return 1;
}

static int begin_member(struct parser *p, const struct json_event *e)
{
    for (int i = 0; i < MEMBERS; i++) {
        if (!slice_eq(e->text, slice_of(members[i].name)))
            continue;
        p->member = &members[i];
        if ((p->seen >> i & 1) != 0)
            return refuse(p, "is there twice");
        p->seen |= 1u << i;
        return 0;
    }
    const char *near = nearest(e->text);
    buf_add_text(p->fault, "unknown member ");
    json_quote(p->fault, e->text);
    if (near != NULL)
        buf_printf(p->fault, " (did you mean %s?)", near);
    return 1;
}

static void *target(const struct parser *p)
{
    return (char *)p->r + p->member->offset;
}

static int take_text(struct parser *p, const struct json_event *e)
{
    if (e->type != JSON_STRING)
        return refuse(p, "must be a string");
    bool id = p->member->offset == offsetof(struct key_record, id);
    if (id && (e->decoded == 0 || e->decoded > KEY_ID_MAX))
        return refuse(p, "must have 1 to 128 bytes");
    if (!e->whole)
        return refuse(p, "must have at most 256 bytes");
    *(struct slice *)target(p) = arena_dup(p->arena, e->text);
    return 0;
}

static int take_digest(struct parser *p, const struct json_event *e)
{
    static const char rule[] = "must be a string of 64 hexadecimal digits";
    if (e->type != JSON_STRING || e->decoded != 2 * KEY_DIGEST)
        return refuse(p, rule);
    for (int i = 0; i < KEY_DIGEST; i++) {
        char high = e->text.p[2 * i], low = e->text.p[2 * i + 1];
        if (!char_is(high, CHAR_HEX) || !char_is(low, CHAR_HEX))
            return refuse(p, rule);
        p->r->digest[i] = (unsigned char)(char_hex(high) << 4 | char_hex(low));
    }
    return 0;
}

static int take_number(struct parser *p, const struct json_event *e)
{
    bool integer = p->member->kind == INTEGER;
    double min = p->member->min;
    if (e->type != JSON_NUMBER || !e->whole)
        return refuse(p, integer ? "must be an integer" : "must be a number");
    char text[JSON_CAPTURE + 1];
    memcpy(text, e->text.p, e->text.n);
    text[e->text.n] = '\0';
    double v = strtod(text, NULL);
    if (integer) {
        if (v != floor(v) || v < min || v > INTEGER_MAX)
            return refuse(p, min > 0 ? "must be an integer from 1 to 2^53 - 1"
                                     : "must be an integer from 0 to 2^53 - 1");
        *(int64_t *)target(p) = (int64_t)v;
        return 0;
    }
    if (!isfinite(v) || v < min || v == 0)
        return refuse(p, min > 0 ? "must be a number of at least 1" : "must be a number above 0");
    *(double *)target(p) = v;
    return 0;
}

static int take_flag(struct parser *p, const struct json_event *e)
{
    if (e->type != JSON_TRUE && e->type != JSON_FALSE)
        return refuse(p, "must be true or false");
    *(bool *)target(p) = e->type == JSON_TRUE;
    return 0;
}

static int take_route(struct parser *p, const struct json_event *e)
{
    if (e->type != JSON_STRING)
        return refuse(p, "must be an array of strings");
    if (!e->whole)
        return refuse(p, "must have names of at most 256 bytes");
    if (p->r->nroutes == p->capacity) {
        struct slice *more = arena_alloc(p->arena, 2 * p->capacity * sizeof *more);
        memcpy(more, p->routes, p->capacity * sizeof *more);
        p->r->routes = p->routes = more;
        p->capacity *= 2;
    }
    p->routes[p->r->nroutes++] = arena_dup(p->arena, e->text);
    return 0;
}

static int begin_routes(struct parser *p, const struct json_event *e)
{
    if (e->type == JSON_ARRAY_END)
        return 0;
    if (e->type != JSON_ARRAY)
        return refuse(p, "must be an array of strings");
    p->capacity = 4;
    p->r->routes = p->routes = arena_alloc(p->arena, p->capacity * sizeof *p->routes);
    return 0;
}

static int on_event(void *arg, const struct json_event *e)
{
    struct parser *p = arg;
    if (e->depth == 0) {
        if (e->type == JSON_OBJECT || e->type == JSON_OBJECT_END)
            return 0;
        buf_add_text(p->fault, "a record must be an object");
        return 1;
    }
    if (e->depth > 1)
        return take_route(p, e); /* any other value that could contain one was refused */
    if (e->type == JSON_KEY)
        return begin_member(p, e);
    switch (p->member->kind) {
    case TEXT: return take_text(p, e);
    case DIGEST: return take_digest(p, e);
    case NUMBER:
    case INTEGER: return take_number(p, e);
    case FLAG: return take_flag(p, e);
    default: return begin_routes(p, e);
    }
}

/* What no member alone can tell. A record's burst may be meant for its plan's rps. */
static int check_whole(const struct parser *p)
{
    const struct key_record *r = p->r;
    for (int i = 0; i < REQUIRED; i++) {
        if ((p->seen >> i & 1) == 0) {
            buf_printf(p->fault, "%s is missing", members[i].name);
            return -1;
        }
    }
    double burst = r->burst > 0 ? r->burst : fmax(1, r->rps);
    if (r->rps > 0 && burst / r->rps > WINDOW_MAX) {
        buf_add_text(p->fault, "burst / rps, the time that a bucket takes to fill, must be at most "
                               "31 days");
        return -1;
    }
    return 0;
}

int key_record_parse(struct key_record *r, struct arena *a, struct slice line, struct buf *fault)
{
    *r = (struct key_record){ .monthly_tokens = -1 };
    struct parser p = { .r = r, .arena = a, .fault = fault };
    struct json j;
    json_init(&j, on_event, &p);
    int rc = json_feed(&j, line.p, line.n);
    if (rc == 0)
        rc = json_finish(&j);
    if (rc == -1)
        buf_printf(fault, "%s at byte %llu", json_fault(&j), (unsigned long long)j.offset + 1);
    return rc == 0 ? check_whole(&p) : -1;
}
