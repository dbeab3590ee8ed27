/* Inside llm: what each API brings, and what the common readers of requests and answers give it. An
 * API is one file with one struct llm_dialect; llm.c lists them. */
#ifndef TOLLGATE_LLM_API_H
#define TOLLGATE_LLM_API_H

#include "llm.h"
#include "llm_path.h"

/* A member's integer, and whether it was given (null is not). */
struct llm_number {
    bool given;
    uint64_t value;
    size_t null_start, null_end; /* the bytes of a null in its place; 0 where there is none */
};

/* A request that is being inspected. */
struct llm_scan {
    struct slice body;
    const struct llm_options *options;
    struct llm_request *out;
    struct llm_path path;
    uint64_t seen;                /* members that may stand only once: bits by enum llm_key */
    uint64_t text, images, files; /* of the prompt: bytes, and how many */
    size_t members;               /* where the first member of the body may be put */
    bool has_members;
    struct llm_number max_completion_tokens, max_tokens, n;
    struct {
        enum { LLM_OPTIONS_ABSENT, LLM_OPTIONS_NULL, LLM_OPTIONS_OBJECT } is;
        size_t start, end; /* of null, or of the opening brace */
        bool has_members;
        size_t include_start, include_end; /* include_usage's value; 0 where there is none */
    } stream_options;
};

/* What an answer has told so far, and what its current event (or the whole JSON body) holds. */
struct llm_answer {
    struct llm_path path;
    struct llm_usage usage;
    struct {
        struct llm_number input, output, total;
        bool usage, bad_usage; /* a usage object; one whose numbers are none */
        bool no_choices;       /* choices is [] */
        bool other;            /* this is not the event that only reports usage */
    } event;
};

struct llm_dialect {
    /* Each JSON event of a request. Non-zero: refused, by llm_refuse or one of its like. */
    int (*request)(struct llm_scan *s, const struct json_event *e);
    /* The body was complete: fills what s->out still lacks. Non-zero: refused. */
    int (*request_end)(struct llm_scan *s);
    /* Each JSON event of an answer but the text. */
    void (*answer)(struct llm_answer *a, const struct json_event *e);
    /* Whether a string there is text that the client reads. */
    bool (*answer_text)(const struct llm_path *p, int depth);
    /* The event, or the body, was complete JSON: its usage counts. */
    void (*answer_end)(struct llm_answer *a);
    /* Whether the event is there only because llm_rewrite asked for usage. */
    bool (*answer_extra)(const struct llm_answer *a);
};

extern const struct llm_dialect llm_chat;

/* NULL where nothing reads that API. */
const struct llm_dialect *llm_dialect_of(enum llm_api api);

/* False where e is no whole number of 0 or more. One above 2^53 comes out as 2^53 + 1. */
bool llm_uint(const struct json_event *e, uint64_t *out);

/* Sets the fault of a request. Always 1. */
int llm_refuse(struct llm_scan *s, const char *param, const char *code, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* Non-zero, refused, where the member stood before. */
int llm_once(struct llm_scan *s, enum llm_key key);
/* These read the value of a member; null is absent. Non-zero: refused. */
int llm_take_model(struct llm_scan *s, const struct json_event *e);
int llm_take_bool(struct llm_scan *s, const struct json_event *e, const char *param,
                  enum llm_ask *out);
int llm_take_count(struct llm_scan *s, const struct json_event *e, const char *param,
                   uint64_t least, struct llm_number *out);
/* Prompt, output and reservation from s->text and so on; `given` is the output's maximum. */
int llm_estimate(struct llm_scan *s, const struct llm_number *given, const char *param);
/* Text in the place of the bytes [start, end); kept in the order of their places. */
void llm_add_edit(struct llm_request *r, size_t start, size_t end, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

#endif
