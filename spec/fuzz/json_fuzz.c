/* JSON: any split gives the same events at the same places; what is accepted is what yajl accepts,
 * with the same values; canonical forms are JSON, and their own canonical form; every value can be
 * located, replaced and taken out, and nothing else changes. */
#include <yajl/yajl_parse.h>

#include "fuzz.h"
#include "json_canonical.h"
#include "json_edit.h"

enum { VALUES = 64 }; /* of one document that are edited */

struct value {
    struct json_step path[JSON_STEPS];
    unsigned depth;
    size_t start, end;
};

struct scan {
    struct slice doc;
    struct buf said, values; /* with places; as yajl says them */
    struct json_step path[JSON_DEPTH + 1];
    bool array[JSON_DEPTH + 1];
    struct value value[VALUES];
    unsigned n;
};

static bool is_value(enum json_type t)
{
    return t != JSON_KEY && t != JSON_OBJECT_END && t != JSON_ARRAY_END;
}

/* Notes where a value stands, and whether the place has a name that a path can have. */
static void note(struct scan *s, const struct json_event *e)
{
    bool scalar = e->type != JSON_OBJECT && e->type != JSON_ARRAY;
    if (!is_value(e->type) || !scalar || e->depth == 0 || e->depth > JSON_STEPS || s->n == VALUES)
        return;
    struct value *v = &s->value[s->n++];
    v->depth = (unsigned)e->depth;
    v->start = e->start;
    v->end = e->end;
    memcpy(v->path, s->path + 1, v->depth * sizeof *v->path);
}

static void walk(struct scan *s, const struct json_event *e)
{
    int d = e->depth;
    if (e->type == JSON_KEY) {
        s->path[d] = (struct json_step){ { s->doc.p + e->start, e->end - e->start }, 0 };
        return;
    }
    if (is_value(e->type))
        note(s, e);
    if (e->type == JSON_OBJECT || e->type == JSON_ARRAY) {
        if (d < JSON_DEPTH) {
            s->array[d + 1] = e->type == JSON_ARRAY;
            s->path[d + 1] = (struct json_step){ { NULL, 0 }, 0 };
        }
        return;
    }
    if (d > 0 && s->array[d])
        s->path[d].index++;
}

static int on_event(void *arg, const struct json_event *e)
{
    struct scan *s = arg;
    static const char names[] = "{}[]ks#tfn";
    CHECK(e->start < e->end && e->end <= s->doc.n);
    CHECK(e->whole == (e->text.n == e->decoded));
    buf_printf(&s->said, "%c%d %llu-%llu %llu ", names[e->type], e->depth,
               (unsigned long long)e->start, (unsigned long long)e->end,
               (unsigned long long)e->decoded);
    buf_add_slice(&s->said, e->text);
    buf_add_text(&s->said, "\n");
    buf_printf(&s->values, "%c", names[e->type]);
    if (e->type == JSON_NUMBER)
        buf_add(&s->values, s->doc.p + e->start, e->end - e->start);
    else if (e->type == JSON_KEY || e->type == JSON_STRING)
        buf_printf(&s->values, "%llu ", (unsigned long long)e->decoded);
    walk(s, e);
    return 0;
}

static int scan(struct scan *s, struct slice doc, enum fuzz_cut cut, struct json *j)
{
    memset(s, 0, sizeof *s);
    s->doc = doc;
    json_init(j, on_event, s);
    struct fuzz_random random = fuzz_random(doc);
    struct slice piece, rest = doc;
    char *hold = NULL;
    int status = 0;
    while (status == 0 && (piece = fuzz_piece(&rest, cut, &random, &hold)).n > 0)
        status = json_feed(j, piece.p, piece.n);
    free(hold);
    if (status == 0)
        status = json_finish(j);
    CHECK((status == 0) == (json_fault(j) == NULL));
    if (status != 0)
        buf_printf(&s->said, "! %s at %llu\n", json_fault(j), (unsigned long long)j->offset);
    return status;
}

static void scan_deinit(struct scan *s)
{
    buf_deinit(&s->said);
    buf_deinit(&s->values);
}

/* --- yajl --- */

static int say(void *arg, char c)
{
    buf_add(arg, &c, 1);
    return 1;
}

static int y_null(void *arg)
{
    return say(arg, 'n');
}

static int y_boolean(void *arg, int is)
{
    return say(arg, is ? 't' : 'f');
}

static int y_number(void *arg, const char *p, size_t n)
{
    say(arg, '#');
    buf_add(arg, p, n);
    return 1;
}

static int y_string(void *arg, const unsigned char *p, size_t n)
{
    (void)p;
    buf_printf(arg, "s%zu ", n);
    return 1;
}

static int y_key(void *arg, const unsigned char *p, size_t n)
{
    (void)p;
    buf_printf(arg, "k%zu ", n);
    return 1;
}

static int y_map(void *arg)
{
    return say(arg, '{');
}

static int y_map_end(void *arg)
{
    return say(arg, '}');
}

static int y_array(void *arg)
{
    return say(arg, '[');
}

static int y_array_end(void *arg)
{
    return say(arg, ']');
}

static const yajl_callbacks callbacks = { y_null,    y_boolean, NULL,       NULL,
                                          y_number,  y_string,  y_map,      y_key,
                                          y_map_end, y_array,   y_array_end };

static bool by_yajl(struct slice doc, struct buf *out)
{
    yajl_handle h = yajl_alloc(&callbacks, NULL, out);
    bool fine = yajl_parse(h, (const unsigned char *)doc.p, doc.n) == yajl_status_ok &&
                yajl_complete_parse(h) == yajl_status_ok;
    yajl_free(h);
    return fine;
}

/* yajl takes UTF-8 that is overlong or beyond Unicode, surrogates, and any depth; it turns half of
 * a pair into "?". So where it accepts and we do not, or lengths differ, one of these must be
 * there. */
static bool yajl_is_lax(struct slice doc, const char *fault)
{
    static const char *const reasons[] = { "UTF-8", "deep", "nest", "byte order", "more follows" };
    for (size_t i = 0; fault != NULL && i < sizeof reasons / sizeof *reasons; i++) {
        if (strstr(fault, reasons[i]) != NULL)
            return true;
    }
    if (memchr(doc.p, '\v', doc.n) != NULL || memchr(doc.p, '\f', doc.n) != NULL)
        return true;
    return memmem(doc.p, doc.n, "\\ud", 3) != NULL || memmem(doc.p, doc.n, "\\uD", 3) != NULL;
}

static void compare(struct scan *s, int status, const char *fault)
{
    struct buf theirs;
    buf_init(&theirs);
    bool fine = by_yajl(s->doc, &theirs);
    bool lax = yajl_is_lax(s->doc, fault);
    if (status == 0 && !lax) {
        CHECK(fine);
        fuzz_same(&s->values, &theirs, "values of the scanner and of yajl");
    } else if (fine && !lax) {
        fprintf(stderr, "yajl accepts what the scanner refuses: %s\n", fault);
        abort();
    }
    buf_deinit(&theirs);
}

/* --- what is done with documents --- */

static void canonical(struct slice doc)
{
    struct buf one, two;
    buf_init(&one);
    buf_init(&two);
    const char *fault = NULL;
    size_t at = 0;
    if (json_canonical(doc, NULL, 0, &one, &fault, &at) == 0) {
        CHECK(json_canonical(buf_slice(&one), NULL, 0, &two, &fault, &at) == 0);
        fuzz_same(&one, &two, "the canonical form and its own");
    } else {
        CHECK(fault != NULL && one.n == 0);
    }
    buf_deinit(&one);
    buf_deinit(&two);
}

static bool valid(struct slice doc)
{
    struct json j;
    struct scan *s = malloc(sizeof *s);
    CHECK(s != NULL);
    bool fine = scan(s, doc, FUZZ_WHOLE, &j) == 0;
    scan_deinit(s);
    free(s);
    return fine;
}

static void edit(struct slice doc, struct value *v, const struct json_place *place)
{
    struct buf out;
    struct json_place again;
    const char *fault;
    size_t at;
    buf_init(&out);
    CHECK(json_set(doc, place, (struct slice){ NULL, 0 }, SLICE("[\"new\"]"), &out));
    CHECK(out.n == doc.n - (v->end - v->start) + 7);
    CHECK(memcmp(out.p, doc.p, v->start) == 0);
    CHECK(memcmp(out.p + v->start + 7, doc.p + v->end, doc.n - v->end) == 0);
    CHECK(json_locate(buf_slice(&out), v->path, v->depth, &again, &fault, &at) == 0);
    CHECK(again.found && again.start == v->start && again.end == v->start + 7);
    buf_clear(&out);
    json_remove(doc, place, &out);
    CHECK(out.n < doc.n && valid(buf_slice(&out)));
    bool element = v->path[v->depth - 1].key.p == NULL;
    CHECK(json_locate(buf_slice(&out), v->path, v->depth, &again, &fault, &at) == 0);
    CHECK(again.parent && (element || !again.found));
    buf_deinit(&out);
}

/* Keys were noted as they stand in the document, and paths are of decoded names. */
static void decode_path(struct value *v, char *to)
{
    for (unsigned i = 0; i < v->depth; i++) {
        struct slice *key = &v->path[i].key;
        if (key->p == NULL)
            continue;
        char *end = json_unescape(to, (struct slice){ key->p + 1, key->n - 2 }, NULL);
        *key = (struct slice){ to, (size_t)(end - to) };
        to = end;
    }
}

static void edits(struct scan *s)
{
    char *names = malloc(s->doc.n * JSON_STEPS + 1);
    CHECK(names != NULL);
    for (unsigned i = 0; i < s->n; i++) {
        struct value *v = &s->value[i];
        struct json_place place;
        const char *fault = NULL;
        size_t at = 0;
        decode_path(v, names);
        if (json_locate(s->doc, v->path, v->depth, &place, &fault, &at) != 0) {
            CHECK(fault != NULL && at <= s->doc.n); /* a name stands twice */
            continue;
        }
        CHECK(place.found && place.start == v->start && place.end == v->end);
        edit(s->doc, v, &place);
    }
    free(names);
}

static void quote(struct slice text)
{
    struct buf out;
    buf_init(&out);
    json_quote(&out, text);
    CHECK(out.n >= 2 && valid(buf_slice(&out)));
    char *to = malloc(out.n);
    CHECK(to != NULL);
    bool lone = false;
    char *end = json_unescape(to, (struct slice){ out.p + 1, out.n - 2 }, &lone);
    struct buf again;
    buf_init(&again);
    json_quote(&again, (struct slice){ to, (size_t)(end - to) });
    CHECK(!lone);
    fuzz_same(&out, &again, "a quoted text and the same again");
    free(to);
    buf_deinit(&out);
    buf_deinit(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    struct slice input = { (const char *)bytes, n };
    static struct scan first, other;
    struct json j, k;
    int status = scan(&first, input, FUZZ_WHOLE, &j);
    for (enum fuzz_cut cut = FUZZ_BYTES; cut < FUZZ_CUTS; cut++) {
        CHECK(scan(&other, input, cut, &k) == status);
        fuzz_same(&first.said, &other.said, "two splits of JSON");
        scan_deinit(&other);
    }
    compare(&first, status, json_fault(&j));
    canonical(input);
    quote(input);
    if (status == 0)
        edits(&first);
    scan_deinit(&first);
    return 0;
}
