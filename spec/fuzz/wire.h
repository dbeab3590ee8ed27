/* Requests or responses out of bytes, in any split, as one text that says all of them: what two
 * ways to read the same bytes are compared by. */
#ifndef TOLLGATE_FUZZ_WIRE_H
#define TOLLGATE_FUZZ_WIRE_H

#include "fuzz.h"
#include "parse.h"

enum { WIRE_MESSAGES = 8 }; /* looked at in one input */

struct wire {
    bool is_request;
    const char *method; /* that responses answer */
    struct parser *parser;
    struct arena arena;
    struct request request;
    struct response response;
    struct buf said;  /* everything, with faults and where they are */
    struct buf again; /* each complete message as the host would write it */
    struct buf body;
    bool whole; /* the last message was complete */
    int heads, ended;
};

/* Reads all of it. */
void wire_read(struct wire *w, bool is_request, const char *method, struct slice bytes,
               enum fuzz_cut cut);
void wire_deinit(struct wire *w);

#endif
