/* Whether a stream begins with an error, told by its first event; and the code of an error in an
 * LLM API's shape. Comments and pings come before any event and say nothing. */
#ifndef TOLLGATE_LLM_PEEK_H
#define TOLLGATE_LLM_PEEK_H

#include "llm.h"
#include "sse.h"

enum {
    LLM_PEEK = 16384,   /* bytes of a stream, and of an event's data; what is longer is no error */
    LLM_ERROR_CODE = 64 /* bytes */
};

enum llm_peeked { LLM_PEEK_MORE, LLM_PEEK_FINE, LLM_PEEK_ERROR };

struct llm_peek {
    struct sse sse;
    struct buf data; /* of the event that is being read */
    enum llm_peeked found;
    struct slice code; /* with LLM_PEEK_ERROR; p == NULL where it has none */
    char text[LLM_ERROR_CODE];
};

/* Not to be moved. */
void llm_peek_init(struct llm_peek *p);
void llm_peek_deinit(struct llm_peek *p);
/* What is known behind this piece of the stream. Once it is not MORE it stays so. */
enum llm_peeked llm_peek_feed(struct llm_peek *p, struct slice piece);

/* The error in a JSON text: its `code`, else its `type`, into out. What it returns is empty, p ==
 * NULL, where there is no error or it has neither. */
struct slice llm_error_code(struct slice json, char out[LLM_ERROR_CODE]);

#endif
