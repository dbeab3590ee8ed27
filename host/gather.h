/* A head is gathered until its empty line, whatever pieces it arrives in, within limits. One
 * that arrives in a single piece is copied once. Part of parse. */
#ifndef TOLLGATE_GATHER_H
#define TOLLGATE_GATHER_H

#include "arena.h"
#include "buf.h"
#include "parse_head.h"

struct gather {
    bool is_request;
    bool skipped_cr; /* of an empty line before the request */
    int empty_lines;
    size_t line; /* where the unfinished line starts */
    const struct parse_limits *limits;
    struct buf kept; /* a head of which the end is missing */
};

void gather_init(struct gather *g, bool is_request, const struct parse_limits *limits);
void gather_deinit(struct gather *g);
/* Ready for the next head. */
void gather_reset(struct gather *g);
/* Takes bytes up to the head's end and returns how many; head->p is set, to a copy in the arena,
 * once it is there. */
size_t gather_feed(struct gather *g, const char *bytes, size_t n, struct arena *arena,
                   struct slice *head, struct parse_fault *fault);

#endif
