/* See llm_peek.h. Errors look like this:
 *
 *   {"error": {"type": …, "code": …, …}}                    chat, embeddings, and what mimics them
 *   {"type": "error", "error": {"type": …, …}, …}           messages
 *   {"type": "error", "code": …, …}                         responses, in a stream
 *   {"type": "response.failed", "response": {"error": {"code": …, …}, …}, …}    responses */
#include "llm_peek.h"

#include "json.h"
#include "llm_path.h"

struct found {
    struct llm_path path;
    bool error, ping, type_error;
    struct slice code, type, top_code;
    char text[3][LLM_ERROR_CODE];
};

/* Where the members of an error are: 0 nowhere, else the depth of its members. */
static int inside_error(const struct llm_path *p, int depth)
{
    if (depth == 2 && llm_path_at(p, 1) == LLM_K_ERROR)
        return 2;
    if (depth == 3 && llm_path_at(p, 1) == LLM_K_RESPONSE && llm_path_at(p, 2) == LLM_K_ERROR)
        return 3;
    return 0;
}

static void take(const struct json_event *e, char text[LLM_ERROR_CODE], struct slice *out)
{
    bool fits = (e->type == JSON_STRING || e->type == JSON_NUMBER) && e->whole &&
                e->text.n <= LLM_ERROR_CODE && e->text.n > 0;
    if (!fits || out->p != NULL)
        return;
    memcpy(text, e->text.p, e->text.n);
    *out = (struct slice){ text, e->text.n };
}

static int on_value(void *arg, const struct json_event *e)
{
    struct found *f = arg;
    llm_path_step(&f->path, e);
    if (e->type == JSON_KEY || e->type == JSON_OBJECT_END || e->type == JSON_ARRAY_END)
        return 0;
    enum llm_key key = llm_path_at(&f->path, e->depth);
    if (e->depth == 1 && key == LLM_K_TYPE && e->type == JSON_STRING) {
        f->type_error =
            slice_eq(e->text, SLICE("error")) || slice_eq(e->text, SLICE("response.failed"));
        f->ping = slice_eq(e->text, SLICE("ping"));
    }
    if (e->depth == 1 && key == LLM_K_CODE)
        take(e, f->text[2], &f->top_code);
    if (e->depth == 1 && key == LLM_K_ERROR && e->type != JSON_NULL && e->type != JSON_FALSE)
        f->error = true;
    if (inside_error(&f->path, e->depth) != 0 && key == LLM_K_CODE)
        take(e, f->text[0], &f->code);
    if (inside_error(&f->path, e->depth) != 0 && key == LLM_K_TYPE)
        take(e, f->text[1], &f->type);
    return 0;
}

static bool look(struct slice json, struct found *f)
{
    struct json j;
    json_init(&j, on_value, f);
    bool sound = json_feed(&j, json.p, json.n) == 0 && json_finish(&j) == 0;
    f->error = f->error || f->type_error;
    return sound;
}

static struct slice code_of(const struct found *f)
{
    if (f->code.p != NULL || f->type.p != NULL)
        return f->code.p != NULL ? f->code : f->type;
    return f->type_error ? f->top_code : (struct slice){ NULL, 0 };
}

static struct slice copy(struct slice s, char out[LLM_ERROR_CODE])
{
    if (s.p == NULL)
        return s;
    memcpy(out, s.p, s.n);
    return (struct slice){ out, s.n };
}

struct slice llm_error_code(struct slice json, char out[LLM_ERROR_CODE])
{
    struct found f = { 0 };
    if (!look(json, &f) || !f.error)
        return (struct slice){ NULL, 0 };
    return copy(code_of(&f), out);
}

/* --- streams --- */

static void on_data(void *arg, struct slice piece)
{
    struct llm_peek *p = arg;
    if (p->data.n + piece.n > LLM_PEEK && p->found == LLM_PEEK_MORE)
        p->found = LLM_PEEK_FINE;
    if (p->found == LLM_PEEK_MORE)
        buf_add_slice(&p->data, piece);
}

static void on_event(void *arg, const struct sse_event *e)
{
    struct llm_peek *p = arg;
    struct found f = { 0 };
    if (p->found != LLM_PEEK_MORE)
        return;
    look(buf_slice(&p->data), &f);
    buf_clear(&p->data);
    if (slice_eq(e->name, SLICE("ping")) || f.ping)
        return;
    bool error = f.error || slice_eq(e->name, SLICE("error"));
    p->found = error ? LLM_PEEK_ERROR : LLM_PEEK_FINE;
    if (error)
        p->code = copy(code_of(&f), p->text);
}

void llm_peek_init(struct llm_peek *p)
{
    memset(p, 0, sizeof *p);
    buf_init(&p->data);
    sse_init(&p->sse, on_data, on_event, p);
}

void llm_peek_deinit(struct llm_peek *p)
{
    buf_deinit(&p->data);
}

enum llm_peeked llm_peek_feed(struct llm_peek *p, struct slice piece)
{
    if (p->found == LLM_PEEK_MORE)
        sse_feed(&p->sse, piece);
    if (p->found == LLM_PEEK_MORE && p->sse.offset > LLM_PEEK)
        p->found = LLM_PEEK_FINE;
    return p->found;
}
