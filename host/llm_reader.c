/* Reading usage out of an answer that passes by. Nothing is buffered but, where the usage event is
 * to be taken out, the bytes of one event that may be it: from its first line on, until a value
 * shows that it is an ordinary one. */
#include "json.h"
#include "llm_api.h"
#include "mem.h"
#include "sse.h"

struct llm_reader {
    const struct llm_dialect *dialect;
    enum llm_body body;
    bool strip;
    bool in_data; /* the event has data; json has been begun for it */
    uint8_t head_n;
    char head[8]; /* the first bytes of the event's data, for [DONE] */
    struct llm_answer answer;
    struct llm_usage shown;
    struct sse sse;
    struct json json;
    /* stripping: where the bytes of the current piece lie, and what came out so far */
    struct slice piece;
    uint64_t base;    /* offset of piece */
    uint64_t passed;  /* all before it has been emitted or taken out */
    struct buf held;  /* the bytes from passed to base */
    struct buf taken; /* the usage event that was taken out */
    void (*emit)(void *arg, struct slice);
    void *arg;
};

static int on_value(void *arg, const struct json_event *e)
{
    struct llm_reader *r = arg;
    struct llm_answer *a = &r->answer;
    llm_path_step(&a->path, e);
    if (e->type == JSON_STRING && r->dialect->answer_text(&a->path, e->depth))
        a->usage.text_bytes += e->decoded;
    r->dialect->answer(a, e);
    if (e->depth == 0 && e->type == JSON_OBJECT_END && r->body == LLM_BODY_JSON) {
        r->dialect->answer_end(a);
        a->usage.done = true;
    }
    return 0;
}

static void on_data(void *arg, struct slice piece)
{
    struct llm_reader *r = arg;
    if (!r->in_data)
        json_init(&r->json, on_value, r);
    r->in_data = true;
    size_t room = sizeof r->head - r->head_n, n = piece.n < room ? piece.n : room;
    memcpy(r->head + r->head_n, piece.p, n);
    r->head_n = (uint8_t)(r->head_n + n);
    if (json_feed(&r->json, piece.p, piece.n) != 0)
        r->answer.event.other = true;
}

static void emit_or_take(struct llm_reader *r, struct slice bytes, bool emit)
{
    if (emit)
        r->emit(r->arg, bytes);
    else
        buf_add_slice(&r->taken, bytes);
}

/* Moves on to the offset `to`, emitting what lies before it or taking it out. */
static void pass(struct llm_reader *r, uint64_t to, bool emit)
{
    if (r->passed < r->base && r->passed < to) {
        size_t n = (size_t)((to < r->base ? to : r->base) - r->passed);
        emit_or_take(r, (struct slice){ r->held.p, n }, emit);
        buf_consume(&r->held, n);
        r->passed += n;
    }
    if (r->passed < to) {
        const char *p = r->piece.p + (r->passed - r->base);
        emit_or_take(r, (struct slice){ p, (size_t)(to - r->passed) }, emit);
        r->passed = to;
    }
}

/* Text of a string that has not ended. */
static uint64_t partial_text(const struct llm_reader *r)
{
    struct json_event e;
    bool idle = r->body == LLM_BODY_STREAM && !r->in_data;
    if (r->dialect == NULL || idle || r->answer.usage.malformed)
        return 0;
    bool text = json_partial(&r->json, &e) && r->dialect->answer_text(&r->answer.path, e.depth);
    return text ? e.decoded : 0;
}

static void on_event(void *arg, const struct sse_event *e)
{
    struct llm_reader *r = arg;
    struct llm_answer *a = &r->answer;
    bool complete = r->in_data && json_finish(&r->json) == 0;
    if (complete)
        r->dialect->answer_end(a);
    a->usage.text_bytes += partial_text(r);
    if (slice_eq(slice_trim((struct slice){ r->head, r->head_n }), SLICE("[DONE]")))
        a->usage.done = true;
    if (slice_eq(e->name, SLICE("error")))
        a->usage.error = true;
    /* A larger one may have been released already, depending on the split: so none is taken out. */
    if (r->strip && complete && r->dialect->answer_extra(a) && e->end - e->start <= LLM_HOLD) {
        pass(r, e->start, true);
        buf_clear(&r->taken); /* the last one counts */
        pass(r, e->end, false);
    }
    memset(&a->event, 0, sizeof a->event);
    r->in_data = false;
    r->head_n = 0;
}

struct llm_reader *llm_reader_new(enum llm_api api, enum llm_body body, bool strip)
{
    struct llm_reader *r = mem_zalloc(sizeof *r);
    r->dialect = llm_dialect_of(api);
    r->body = r->dialect != NULL || body == LLM_BODY_ENCODED ? body : LLM_BODY_OTHER;
    r->strip = strip && r->body == LLM_BODY_STREAM && r->dialect->answer_extra != NULL;
    buf_init(&r->held);
    buf_init(&r->taken);
    json_init(&r->json, on_value, r);
    sse_init(&r->sse, on_data, on_event, r);
    return r;
}

void llm_reader_free(struct llm_reader *r)
{
    if (r == NULL)
        return;
    buf_deinit(&r->held);
    buf_deinit(&r->taken);
    mem_free(r);
}

/* Once the bytes turn out to be no JSON, all that follow count as text. */
static void read_json(struct llm_reader *r, struct slice piece)
{
    struct llm_usage *u = &r->answer.usage;
    uint64_t end = r->json.offset + piece.n;
    if (u->malformed) {
        u->text_bytes += piece.n;
    } else if (json_feed(&r->json, piece.p, piece.n) != 0) {
        u->text_bytes += partial_text(r) + end - r->json.offset;
        u->malformed = true;
    }
}

static void read_stripping(struct llm_reader *r, struct slice piece)
{
    uint64_t end = r->sse.offset + piece.n;
    r->base = r->sse.offset;
    r->piece = piece;
    sse_feed(&r->sse, piece);
    uint64_t pending = sse_pending(&r->sse);
    bool decided = r->answer.event.other || end - pending > LLM_HOLD;
    pass(r, decided ? end : pending, true);
    uint64_t from = r->passed > r->base ? r->passed - r->base : 0;
    buf_add(&r->held, piece.p + from, piece.n - (size_t)from);
}

void llm_reader_feed(struct llm_reader *r, struct slice piece,
                     void (*emit)(void *arg, struct slice), void *arg)
{
    if (piece.n == 0)
        return;
    r->emit = emit;
    r->arg = arg;
    if (r->strip) {
        read_stripping(r, piece);
        return;
    }
    if (r->body == LLM_BODY_STREAM)
        sse_feed(&r->sse, piece);
    else if (r->body == LLM_BODY_JSON)
        read_json(r, piece);
    else if (r->body == LLM_BODY_OTHER)
        r->answer.usage.text_bytes += piece.n;
    emit(arg, piece);
}

void llm_reader_end(struct llm_reader *r, void (*emit)(void *arg, struct slice), void *arg)
{
    r->emit = emit;
    r->arg = arg;
    r->piece = (struct slice){ NULL, 0 };
    r->base = r->sse.offset;
    if (r->body == LLM_BODY_STREAM)
        sse_end(&r->sse);
    if (r->strip)
        pass(r, r->sse.offset, true);
    if (r->body == LLM_BODY_JSON && !r->answer.usage.malformed && json_finish(&r->json) == 0)
        r->answer.usage.done = true;
}

struct slice llm_reader_taken(const struct llm_reader *r)
{
    return r->taken.n > 0 ? buf_slice(&r->taken) : (struct slice){ "", 0 };
}

const struct llm_usage *llm_reader_usage(struct llm_reader *r)
{
    r->shown = r->answer.usage;
    r->shown.text_bytes += partial_text(r);
    return &r->shown;
}
