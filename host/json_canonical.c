/* See json_canonical.h. One scan writes the form as it goes. Each open object keeps where its
 * members lie in what is written; at its end they are put in order where they are not, by the bytes
 * of their names as written. */
#include "json_canonical.h"

#include <stdlib.h>

/* In what is written: [start, colon) is the name, [start, end) the member; a comma may lie before
 * it. */
struct member {
    size_t start, colon, end;
    size_t before; /* with the comma */
    size_t at;     /* of the name in the document, for a fault */
    const char *base;
};

struct canonical {
    struct slice doc;
    const struct slice *omit;
    unsigned nomit;
    struct buf *out, members, sorted;
    size_t first[JSON_DEPTH]; /* by level: the first of its members, as a byte of `members` */
    bool object[JSON_DEPTH], begun[JSON_DEPTH];
    bool omitted; /* the last member of the outermost object is to be left out */
    const char *fault;
    uint64_t fault_at;
};

static int refuse(struct canonical *c, uint64_t at, const char *why)
{
    c->fault = why;
    c->fault_at = at;
    return 1;
}

/* A string without escapes is canonical as it stands. */
static int add_string(struct canonical *c, const struct json_event *e)
{
    const char *p = c->doc.p + e->start;
    size_t n = (size_t)(e->end - e->start);
    if (e->decoded == n - 2) {
        buf_add(c->out, p, n);
        return 0;
    }
    struct buf text;
    bool lone = false;
    buf_init(&text);
    char *to = buf_reserve(&text, n + 1);
    text.n = (size_t)(json_unescape(to, (struct slice){ p + 1, n - 2 }, &lone) - to);
    json_quote(c->out, buf_slice(&text));
    buf_deinit(&text);
    return lone ? refuse(c, e->start, "half of a surrogate pair") : 0;
}

static struct member *last_member(struct canonical *c)
{
    return (struct member *)(void *)(c->members.p + c->members.n) - 1;
}

/* The value of the innermost object's last member is complete. */
static void end_member(struct canonical *c, int level)
{
    if (c->members.n == c->first[level])
        return;
    struct member *m = last_member(c);
    m->end = c->out->n;
    if (level > 0 || !c->omitted)
        return;
    c->out->n = m->before;
    c->members.n -= sizeof *m;
    c->begun[0] = c->members.n > c->first[0];
    c->omitted = false;
}

static void separate(struct canonical *c, int level)
{
    if (c->begun[level])
        buf_add(c->out, ",", 1);
    c->begun[level] = true;
}

static bool is_omitted(const struct canonical *c, const struct json_event *e)
{
    for (unsigned i = 0; i < c->nomit; i++) {
        if (e->whole && slice_eq(e->text, c->omit[i]))
            return true;
    }
    return false;
}

static int begin_member(struct canonical *c, const struct json_event *e)
{
    int level = e->depth - 1;
    end_member(c, level);
    struct member m = { .before = c->out->n, .at = (size_t)e->start };
    separate(c, level);
    m.start = c->out->n;
    if (add_string(c, e) != 0)
        return 1;
    m.colon = c->out->n;
    buf_add(c->out, ":", 1);
    buf_add(&c->members, &m, sizeof m);
    if (level == 0)
        c->omitted = is_omitted(c, e);
    return 0;
}

static int compare(const void *a, const void *b)
{
    const struct member *x = a, *y = b;
    size_t nx = x->colon - x->start, ny = y->colon - y->start;
    int order = memcmp(x->base + x->start, y->base + y->start, nx < ny ? nx : ny);
    return order != 0 ? order : (nx > ny) - (nx < ny);
}

static void rewrite(struct canonical *c, const struct member *m, size_t n, size_t from)
{
    buf_clear(&c->sorted);
    for (size_t i = 0; i < n; i++) {
        if (i > 0)
            buf_add(&c->sorted, ",", 1);
        buf_add(&c->sorted, c->out->p + m[i].start, m[i].end - m[i].start);
    }
    memcpy(c->out->p + from, c->sorted.p, c->sorted.n);
}

static int sort_members(struct canonical *c, int level)
{
    if (c->members.n == c->first[level]) /* none, and perhaps no memory for any yet */
        return 0;
    struct member *m = (struct member *)(void *)(c->members.p + c->first[level]);
    size_t n = (c->members.n - c->first[level]) / sizeof *m, from = m->start;
    bool sorted = true;
    for (size_t i = 0; i < n; i++) {
        m[i].base = c->out->p;
        sorted = sorted && (i == 0 || compare(&m[i - 1], &m[i]) < 0);
    }
    if (!sorted) {
        qsort(m, n, sizeof *m, compare);
        for (size_t i = 1; i < n; i++) {
            if (compare(&m[i - 1], &m[i]) == 0)
                return refuse(c, m[i - 1].at > m[i].at ? m[i - 1].at : m[i].at, "duplicate member");
        }
        rewrite(c, m, n, from);
    }
    c->members.n = c->first[level];
    return 0;
}

static int end_container(struct canonical *c, const struct json_event *e)
{
    if (e->type == JSON_OBJECT_END) {
        end_member(c, e->depth);
        if (sort_members(c, e->depth) != 0)
            return 1;
    }
    buf_add(c->out, e->type == JSON_OBJECT_END ? "}" : "]", 1);
    return 0;
}

static void begin_container(struct canonical *c, const struct json_event *e)
{
    c->object[e->depth] = e->type == JSON_OBJECT;
    c->begun[e->depth] = false;
    c->first[e->depth] = c->members.n;
    buf_add(c->out, e->type == JSON_OBJECT ? "{" : "[", 1);
}

static int on_event(void *arg, const struct json_event *e)
{
    struct canonical *c = arg;
    if (e->type == JSON_OBJECT_END || e->type == JSON_ARRAY_END)
        return end_container(c, e);
    if (e->type == JSON_KEY)
        return begin_member(c, e);
    if (e->depth > 0 && !c->object[e->depth - 1])
        separate(c, e->depth - 1);
    if (e->type == JSON_OBJECT || e->type == JSON_ARRAY)
        begin_container(c, e);
    else if (e->type == JSON_STRING)
        return add_string(c, e);
    else
        buf_add(c->out, c->doc.p + e->start, (size_t)(e->end - e->start));
    return 0;
}

int json_canonical(struct slice doc, const struct slice *omit, unsigned n, struct buf *out,
                   const char **fault, size_t *at)
{
    struct canonical c = { .doc = doc, .omit = omit, .nomit = n, .out = out };
    struct json j;
    size_t before = out->n;
    buf_init(&c.members);
    buf_init(&c.sorted);
    buf_reserve(out, doc.n + 1);
    json_init(&j, on_event, &c);
    int rc = json_feed(&j, doc.p, doc.n);
    if (rc == 0)
        rc = json_finish(&j);
    buf_deinit(&c.members);
    buf_deinit(&c.sorted);
    if (rc == 0)
        return 0;
    out->n = before;
    *fault = c.fault != NULL ? c.fault : json_fault(&j);
    *at = (size_t)(c.fault != NULL ? c.fault_at : j.offset);
    return -1;
}
