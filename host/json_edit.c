/* See json_edit.h. One scan follows the path. `level` steps lead to the innermost container on the
 * path that is open: it lies at depth `level`, what is directly inside it one deeper; all else is
 * passed over. */
#include "json_edit.h"

struct search {
    const struct json_step *path;
    unsigned n, level;
    enum json_type kind;   /* of that container */
    bool seen[JSON_STEPS]; /* by level: the name of its step has stood in this object */
    bool hit;              /* the key that was just read is the step's name */
    bool first;            /* nothing has stood in it yet */
    bool inside;           /* in the value that was looked for, a container */
    bool twice;
    uint64_t index; /* of the next element, in an array */
    size_t key_start, last_end;
    struct json_place *out;
};

static void enter(struct search *s, const struct json_event *e)
{
    s->kind = e->type;
    s->first = true;
    s->index = 0;
    s->seen[s->level] = false;
    s->last_end = e->end;
    if (s->level == s->n - 1) {
        s->out->parent = (s->path[s->level].key.p != NULL) == (e->type == JSON_OBJECT);
        s->out->parent_start = e->start;
        s->out->empty = true;
    }
}

/* Back to the container around it, in which it was what the path's step names. */
static void leave(struct search *s, const struct json_event *e)
{
    if (s->level == s->n - 1)
        s->out->parent_end = e->start;
    if (s->level == 0)
        return;
    const struct json_step *step = &s->path[--s->level];
    s->kind = step->key.p != NULL ? JSON_OBJECT : JSON_ARRAY;
    s->index = step->index + 1;
    s->first = false;
    s->last_end = e->end;
}

static int on_key(struct search *s, const struct json_event *e)
{
    const struct json_step *step = &s->path[s->level];
    s->key_start = e->start;
    s->hit = step->key.p != NULL && e->whole && slice_eq(e->text, step->key);
    s->twice = s->hit && s->seen[s->level];
    s->seen[s->level] |= s->hit;
    return s->twice;
}

static void found(struct search *s, const struct json_event *e)
{
    struct json_place *p = s->out;
    p->found = true;
    p->type = e->type;
    p->start = e->start;
    p->end = e->end;
    p->member = s->kind == JSON_OBJECT ? s->key_start : e->start;
    p->before = s->last_end;
    p->first = s->first;
    s->inside = e->type == JSON_OBJECT || e->type == JSON_ARRAY;
}

static void on_value(struct search *s, const struct json_event *e)
{
    const struct json_step *step = &s->path[s->level];
    bool hit = s->kind == JSON_OBJECT ? s->hit : step->key.p == NULL && step->index == s->index;
    bool last = s->level == s->n - 1;
    s->hit = false;
    s->index++;
    if (last)
        s->out->empty = false;
    if (hit && last) {
        found(s, e);
    } else if (hit && (e->type == JSON_OBJECT || e->type == JSON_ARRAY)) {
        s->level++;
        enter(s, e);
        return;
    }
    s->first = false;
    s->last_end = e->end;
}

static int on_event(void *arg, const struct json_event *e)
{
    struct search *s = arg;
    bool ends = e->type == JSON_OBJECT_END || e->type == JSON_ARRAY_END;
    if (e->depth == 0 && !ends) {
        if (e->type == JSON_OBJECT || e->type == JSON_ARRAY)
            enter(s, e);
    } else if (ends && e->depth == (int)s->level) {
        leave(s, e);
    } else if (e->depth == (int)s->level + 1 && ends) {
        s->last_end = e->end;
        if (s->inside)
            s->out->end = e->end;
        s->inside = false;
    } else if (e->depth == (int)s->level + 1) {
        if (e->type == JSON_KEY)
            return on_key(s, e);
        on_value(s, e);
    }
    return 0;
}

int json_locate(struct slice doc, const struct json_step *path, unsigned n, struct json_place *out,
                const char **fault, size_t *at)
{
    struct json j;
    struct search s = { .path = path, .n = n, .out = out };
    *out = (struct json_place){ 0 };
    json_init(&j, on_event, &s);
    if (json_feed(&j, doc.p, doc.n) == 0 && json_finish(&j) == 0)
        return 0;
    *fault = s.twice ? "a name on the path stands twice in its object" : json_fault(&j);
    *at = s.twice ? s.key_start : j.offset;
    return -1;
}

static void add_between(struct buf *out, struct slice doc, size_t from, size_t to)
{
    buf_add(out, doc.p + from, to - from);
}

bool json_set(struct slice doc, const struct json_place *p, struct slice key, struct slice value,
              struct buf *out)
{
    if (p->found) {
        add_between(out, doc, 0, p->start);
        buf_add_slice(out, value);
        add_between(out, doc, p->end, doc.n);
        return true;
    }
    if (!p->parent || key.p == NULL)
        return false;
    add_between(out, doc, 0, p->parent_end);
    if (!p->empty)
        buf_add_text(out, ",");
    json_quote(out, key);
    buf_add_text(out, ":");
    buf_add_slice(out, value);
    add_between(out, doc, p->parent_end, doc.n);
    return true;
}

/* The first member goes with the comma behind it, any other with the one before it. */
void json_remove(struct slice doc, const struct json_place *p, struct buf *out)
{
    size_t from = p->first ? p->member : p->before, to = p->end;
    if (p->first) {
        size_t comma = to;
        while (comma < p->parent_end && doc.p[comma] != ',')
            comma++;
        if (comma < p->parent_end) {
            to = comma + 1;
            while (to < p->parent_end && memchr(" \t\r\n", doc.p[to], 4) != NULL)
                to++;
        }
    }
    add_between(out, doc, 0, from);
    add_between(out, doc, to, doc.n);
}
