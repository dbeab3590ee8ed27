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

/* A part of a message whose members may come in any order: what it costs is known at its end. */
struct llm_part {
    bool attached; /* it holds or names a file, */
    bool image;    /* which is an image, */
    bool plain;    /* or plain text */
    uint64_t bytes;
};

/* A request that is being inspected. */
struct llm_scan {
    struct slice body;
    const struct llm_options *options;
    struct llm_request *out;
    struct llm_path path;
    bool seen[LLM_KEYS];                /* of the members that may stand only once */
    uint64_t text, images, files;       /* of the prompt: bytes, and how many */
    uint64_t tokens;                    /* of it that are counted as such already */
    struct llm_part part[LLM_PATH + 1]; /* by depth: the parts that are open */
    size_t members;                     /* where the first member of the body may be put */
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
    struct llm_tally {
        struct llm_number input, output, total, cache_write, cache_read;
    } sum; /* what several events told, where an API spreads its usage over them */
    struct {
        struct llm_tally tally;
        bool usage, bad_usage; /* a usage object; one whose numbers are none */
        bool inner_usage;      /* a usage object inside the object that the event wraps */
        bool last;             /* its type says that it ends the stream */
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
    /* Whether the event is there only because llm_rewrite asked for usage; NULL where it never
     * asks. */
    bool (*answer_extra)(const struct llm_answer *a);
};

extern const struct llm_dialect llm_chat, llm_responses, llm_embeddings, llm_messages;

/* NULL where nothing reads that API. */
const struct llm_dialect *llm_dialect_of(enum llm_api api);

/* Both dialects and readers */

/* False where e is no whole number of 0 or more. One above 2^53 comes out as 2^53 + 1. */
bool llm_uint(const struct json_event *e, uint64_t *out);

static inline bool llm_ends(const struct json_event *e)
{
    return e->type == JSON_OBJECT_END || e->type == JSON_ARRAY_END;
}

/* Whether a value stands or begins there. */
static inline bool llm_begins(const struct json_event *e)
{
    return e->type != JSON_KEY && !llm_ends(e);
}

static inline bool llm_text_is(const struct json_event *e, struct slice text)
{
    return e->type == JSON_STRING && e->whole && slice_eq(e->text, text);
}

/* Bytes of a key or a scalar that the model reads or writes as it stands; 0 of all else. */
static inline uint64_t llm_bytes(const struct json_event *e)
{
    bool literal = e->type == JSON_TRUE || e->type == JSON_FALSE || e->type == JSON_NULL;
    return literal ? e->end - e->start : e->decoded;
}

/* Requests */

/* Sets the fault of a request. Always 1. */
int llm_refuse(struct llm_scan *s, const char *param, const char *code, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* Non-zero, refused, where the member stood before. */
int llm_once(struct llm_scan *s, enum llm_key key);
/* These read the value of a member; null is absent. Non-zero: refused. */
int llm_take_model(struct llm_scan *s, const struct json_event *e);
int llm_take_stream(struct llm_scan *s, const struct json_event *e);
int llm_take_bool(struct llm_scan *s, const struct json_event *e, const char *param,
                  enum llm_ask *out);
int llm_take_count(struct llm_scan *s, const struct json_event *e, const char *param,
                   uint64_t least, struct llm_number *out);
/* The part has ended: counts what is attached to it. */
void llm_count_part(struct llm_scan *s, const struct llm_part *part);
/* Prompt, output and reservation from s->text and so on; `given` is the output's maximum. */
int llm_estimate(struct llm_scan *s, const struct llm_number *given, const char *param);
/* Text in the place of the bytes [start, end); kept in the order of their places. */
void llm_add_edit(struct llm_request *r, size_t start, size_t end, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* Puts the maximum of output into a body that names none, where the options say so. */
void llm_cap_output(struct llm_scan *s, const struct llm_number *given, const char *param);

/* Answers */

/* Reads a number of a usage object; null is absent. */
void llm_answer_number(struct llm_answer *a, const struct json_event *e, struct llm_number *out);
/* Takes over input, output and total of a tally, where they are complete and make sense. */
void llm_answer_usage(struct llm_answer *a, const struct llm_tally *t);
/* The value of a member named error: notes, and returns, whether it is one. */
bool llm_answer_error(struct llm_answer *a, const struct json_event *e);

#endif
