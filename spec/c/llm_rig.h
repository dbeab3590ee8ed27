/* For tests of llm: what a request is read as, and what an answer is, in whatever pieces it comes.
 * */
#ifndef TOLLGATE_SPEC_LLM_RIG_H
#define TOLLGATE_SPEC_LLM_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "json.h"
#include "llm.h"

static enum llm_api api = LLM_OPENAI_CHAT; /* under test; main sets another one */
static const char *what = "";              /* is read, for the message of a failure */
static uint32_t seed = 1;

static inline uint32_t chance(uint32_t below)
{
    seed = seed * 1664525u + 1013904223u;
    return (seed >> 8) % below;
}

/* Bytes a token, then tokens: output, an image, a file, hidden input; whether the output is capped.
 * */
static const struct llm_options options = { 3, 1000, 800, 2000, 4000, false };
static const struct llm_options capping = { 3, 1000, 800, 2000, 4000, true };

static struct llm_request inspect_storage;

static inline const struct llm_request *inspect(struct slice body, const struct llm_options *o)
{
    enum llm_inspected how = llm_inspect(api, body, o, &inspect_storage);
    if (how != LLM_OK)
        fail_msg("%s", how == LLM_FAULT ? inspect_storage.fault.message : "unsupported");
    return &inspect_storage;
}

/* The prompt at a byte a token; images, files and hidden input as 10^5, 10^6 and 10^7. */
static inline uint64_t prompt_bytes(struct slice body)
{
    static const struct llm_options bytes = { 1, 0, 100000, 1000000, 10000000, false };
    return inspect(body, &bytes)->prompt_tokens;
}

static inline void faults(struct slice body, const char *param, const char *code,
                          const char *message)
{
    assert_int_equal(llm_inspect(api, body, &options, &inspect_storage), LLM_FAULT);
    const struct llm_fault *f = &inspect_storage.fault;
    assert_string_equal(f->message, message);
    assert_string_equal(f->code, code);
    if (param == NULL)
        assert_null(f->param);
    else
        assert_string_equal(f->param, param);
}

/* The body as it goes out; what went out is inspected again, and needs no edit. */
static inline void rewrites(const struct llm_options *o, const char *body, const char *want)
{
    struct buf out;
    buf_init(&out);
    const struct llm_request *r = inspect(slice_of(body), o);
    uint64_t reserve = r->reserve;
    bool changed = llm_rewrite(slice_of(body), r, &out);
    assert_int_equal(changed, strcmp(body, want) != 0);
    if (!changed)
        assert_int_equal(out.n, 0);
    else
        buf_add(&out, "", 1);
    assert_string_equal(changed ? out.p : body, want);
    r = inspect(slice_of(want), o);
    assert_int_equal(r->edits, 0);
    assert_int_equal(r->reserve, reserve);
    assert_true(!o->cap_output || r->output_given);
    assert_true(api != LLM_OPENAI_CHAT || !r->stream || r->include_usage == LLM_TRUE);
    buf_deinit(&out);
}

/* Answers */

struct relay {
    struct buf out;
    struct llm_usage usage;
};

static inline void emit(void *arg, struct slice piece)
{
    assert_true(piece.n > 0);
    buf_add_slice(arg, piece);
}

/* Feeds in pieces of at most `most` bytes: 0 is whole, 1 byte by byte, more is at random. */
static inline void relay(struct slice text, enum llm_body body, bool strip, uint32_t most,
                         struct relay *to)
{
    struct llm_reader *r = llm_reader_new(api, body, strip);
    buf_init(&to->out);
    for (size_t at = 0; at < text.n;) {
        size_t n = most == 0 ? text.n : most == 1 ? 1 : 1 + chance(most);
        if (n > text.n - at)
            n = text.n - at;
        char *copy = malloc(n);
        memcpy(copy, text.p + at, n);
        llm_reader_feed(r, (struct slice){ copy, n }, emit, &to->out);
        free(copy);
        at += n;
        assert_true(strip || to->out.n == at);
        assert_true(at - to->out.n <= text.n);
    }
    llm_reader_end(r, emit, &to->out);
    to->usage = *llm_reader_usage(r);
    struct slice taken = llm_reader_taken(r);
    assert_true(to->out.n + taken.n <= text.n); /* of several, the last is kept */
    assert_true((taken.n > 0) == (to->out.n < text.n));
    llm_reader_free(r);
}

/* As reported. */
static inline struct llm_usage used(uint64_t input, uint64_t output, uint64_t total,
                                    uint64_t text_bytes, bool done, bool error)
{
    return (struct llm_usage){ true, true, input, output, total, text_bytes, done, error, false };
}

static inline void same_usage(struct llm_usage got, struct llm_usage want)
{
    const struct llm_usage *u[2] = { &got, &want };
    char text[2][256];
    for (int i = 0; i < 2; i++)
        snprintf(text[i], sizeof text[i],
                 "%s: known=%d,%d input=%llu output=%llu total=%llu text=%llu done=%d error=%d "
                 "malformed=%d",
                 what, u[i]->known, u[i]->input_known, (unsigned long long)u[i]->input,
                 (unsigned long long)u[i]->output, (unsigned long long)u[i]->total,
                 (unsigned long long)u[i]->text_bytes, u[i]->done, u[i]->error, u[i]->malformed);
    assert_string_equal(text[0], text[1]);
}

static inline void reads(struct slice text, enum llm_body body, bool strip, struct slice want,
                         struct llm_usage usage)
{
    for (uint32_t i = 0; i < 14; i++) {
        struct relay got;
        relay(text, body, strip, i < 12 ? i : i * 10, &got);
        same_usage(got.usage, usage);
        if (!slice_eq(buf_slice(&got.out), want))
            fail_msg("relayed: %.*s\nexpected: %.*s", (int)got.out.n, got.out.p, (int)want.n,
                     want.p);
        buf_deinit(&got.out);
    }
}

static inline void reads_json(const char *text, struct llm_usage usage)
{
    reads(slice_of(text), LLM_BODY_JSON, true, slice_of(text), usage);
}

/* Adds lines with their ends written as LF, CRLF or CR. */
static inline void add_lines(struct buf *to, const char *lines, const char *end)
{
    for (const char *p = lines; *p != '\0'; p++) {
        if (*p == '\n')
            buf_add_text(to, end);
        else
            buf_add(to, p, 1);
    }
}

struct item {
    const char *lines; /* each ended by LF, the blank line included */
    bool extra;        /* taken out when stripping */
};

static inline void reads_stream(const struct item *items, struct llm_usage usage)
{
    static const char *const ends[] = { "\n", "\r\n", "\r" };
    for (int i = 0; i < 3; i++) {
        struct buf all, rest;
        buf_init(&all);
        buf_init(&rest);
        for (const struct item *item = items; item->lines != NULL; item++) {
            add_lines(&all, item->lines, ends[i]);
            if (!item->extra)
                add_lines(&rest, item->lines, ends[i]);
        }
        reads(buf_slice(&all), LLM_BODY_STREAM, false, buf_slice(&all), usage);
        reads(buf_slice(&all), LLM_BODY_STREAM, true, buf_slice(&rest), usage);
        buf_deinit(&all);
        buf_deinit(&rest);
    }
}

#endif
