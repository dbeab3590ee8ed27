/* What the gateway knows of LLM APIs: which one a path belongs to, what a request may cost, the
 * edits that make its cost bounded and reported, the usage that an answer reports, and how an error
 * looks. Plain data: no loop, no I/O. What one API does is in a file of its own (llm_chat.c and its
 * like), behind the table in llm.c. */
#ifndef TOLLGATE_LLM_H
#define TOLLGATE_LLM_H

#include <stdbool.h>
#include <stdint.h>

#include "buf.h"
#include "slice.h"

enum llm_api {
    LLM_NONE,
    LLM_OPENAI_CHAT,
    LLM_OPENAI_RESPONSES,
    LLM_OPENAI_EMBEDDINGS,
    LLM_ANTHROPIC_MESSAGES,
    LLM_APIS
};

enum {
    LLM_MODEL = 256, /* bytes of a model's name */
    LLM_EDITS = 3,   /* of one body */
    LLM_EDIT = 112,  /* bytes of one edit's text */
    LLM_HOLD = 16384 /* bytes of an event that may be held back */
};

/* Counts of tokens are below 2^53, so that Redis, Lua and JSON keep them exactly. */
#define LLM_TOKENS_END (UINT64_C(1) << 53)

/* The API that a normalised path without query belongs to; LLM_NONE where none does. */
enum llm_api llm_api_of_path(struct slice path);
/* A constant: "openai-chat", …, "none". */
const char *llm_api_name(enum llm_api api);
/* False where the name is unknown. */
bool llm_api_of_name(struct slice name, enum llm_api *out);

/* Bytes of text as tokens, rounded up; at most LLM_TOKENS_END. */
uint64_t llm_tokens(uint64_t bytes, double bytes_per_token);

/* Requests */

struct llm_options {
    double bytes_per_token;
    uint64_t default_output;            /* tokens, where the request names no maximum */
    uint64_t image_tokens, file_tokens; /* each */
    uint64_t hidden_tokens; /* once, for input that the body only refers to: an earlier response, a
                             * conversation, a stored prompt */
    bool cap_output;        /* where the request names no maximum, default_output is sent as one */
};

/* Replaces the bytes [start, end) of the body. */
struct llm_edit {
    size_t start, end;
    size_t n;
    char text[LLM_EDIT];
};

/* Why a request is a 400. */
struct llm_fault {
    char message[200];
    const char *param; /* a constant, or NULL where it is no single member */
    const char *code;  /* a constant */
};

enum llm_ask { LLM_ABSENT, LLM_TRUE, LLM_FALSE };

/* Must not be moved or copied: model may point into it. */
struct llm_request {
    struct slice model; /* decoded; into the body or into model_copy; p == NULL where absent */
    size_t model_start; /* to model_end: the value in the body with its quotes; 0 where absent */
    size_t model_end;
    bool stream;
    enum llm_ask include_usage; /* as asked; null counts as absent */
    uint64_t prompt_tokens;     /* an estimate */
    uint64_t output_max;        /* for each choice: as given, else default_output */
    bool output_given;          /* or the API has no output that costs */
    bool hidden;                /* the body refers to input that it does not show */
    bool background;            /* the origin works on behind an answer that has no usage yet */
    uint64_t n;                 /* choices */
    uint64_t reserve;           /* the most it may cost: prompt_tokens + n * output_max */
    bool strip_usage; /* llm_rewrite asks for a usage event that the client did not ask for */
    int edits;
    struct llm_edit edit[LLM_EDITS]; /* by place */
    char model_copy[LLM_MODEL];
    struct llm_fault fault; /* with LLM_FAULT only */
};

enum llm_inspected { LLM_OK, LLM_FAULT, LLM_UNSUPPORTED };

/* Reads a whole request body, which must live as long as out is used. On LLM_FAULT only out->fault
 * is set; on LLM_UNSUPPORTED (an API that this cannot read, and LLM_NONE) nothing is. */
enum llm_inspected llm_inspect(enum llm_api api, struct slice body,
                               const struct llm_options *options, struct llm_request *out);
/* Appends the edited body to out; or returns false and appends nothing, where the body goes out as
 * it is. */
bool llm_rewrite(struct slice body, const struct llm_request *r, struct buf *out);

/* The model that a body names. Must not be moved or copied. */
struct llm_model {
    struct slice name; /* decoded; p == NULL where absent or null */
    size_t start, end; /* the value in the body with its quotes; 0 where absent */
    bool seen;
    char text[LLM_MODEL];
};

/* Reads no more of a whole body than its model, but that to the end. LLM_OK, or LLM_FAULT and
 * *fault: no JSON object, `model` twice, no string, or longer than LLM_MODEL. */
enum llm_inspected llm_find_model(struct slice body, struct llm_model *out,
                                  struct llm_fault *fault);

/* Answers */

/* How an answer's body can be read. */
enum llm_body {
    LLM_BODY_OTHER, /* neither of the following; its bytes are counted as text */
    LLM_BODY_JSON,
    LLM_BODY_STREAM, /* server-sent events */
    LLM_BODY_ENCODED /* content-encoded: not readable, whatever it is */
};

/* By the fields' values; empty where a field is absent. */
enum llm_body llm_body_of(struct slice content_type, struct slice content_encoding);

/* Cached input counts as input. A report that adds up to no token at all is a placeholder and
 * counts as none, for every answer had a prompt. */
struct llm_usage {
    bool known;             /* input, output and total are as the origin reported them */
    bool input_known;       /* input is, though the answer may have broken off before the rest */
    uint64_t input, output; /* where known is false, output is the least that it is */
    uint64_t total;         /* as reported, else input + output */
    uint64_t text_bytes;    /* decoded text that has been read so far, unfinished strings too */
    bool done;              /* the terminal event or a complete JSON value has been seen */
    bool error;             /* an error object or event has been seen */
    bool malformed;         /* LLM_BODY_JSON: the bytes are no JSON */
};

struct llm_reader;

/* strip: the usage event that llm_rewrite asked for is taken out of the stream. */
struct llm_reader *llm_reader_new(enum llm_api api, enum llm_body body, bool strip);
void llm_reader_free(struct llm_reader *r);
/* Reads a piece and emits what goes on to the client: the very piece, or with strip all but the
 * usage event, in order; then bytes of an event are held back until it is known to be another one,
 * or until they are more than LLM_HOLD. What is emitted is borrowed until emit returns, which must
 * neither feed nor free the reader. */
void llm_reader_feed(struct llm_reader *r, struct slice piece,
                     void (*emit)(void *arg, struct slice), void *arg);
/* The end of the answer, proper or not: emits what is held. */
void llm_reader_end(struct llm_reader *r, void (*emit)(void *arg, struct slice), void *arg);
/* The bytes of the usage event that was taken out, with its blank line; empty where none was.
 * Borrowed until the reader is freed. */
struct slice llm_reader_taken(const struct llm_reader *r);
/* Valid until the reader is freed; read anew at each call. */
const struct llm_usage *llm_reader_usage(struct llm_reader *r);

/* Errors */

struct llm_error {
    int status;
    const char *type; /* NULL: the API's usual one for the status */
    const char *code; /* NULL where there is none */
    struct slice message;
    const char *param;       /* NULL where there is none */
    struct slice request_id; /* empty where there is none */
};

/* Appends the error as a JSON body in the API's shape; for LLM_NONE in OpenAI's, with the request's
 * id and without param. */
void llm_error_body(enum llm_api api, const struct llm_error *e, struct buf *out);

#endif
