/* The header fields that tell a client its limits and what is left of them, in the form that its
 * API's clients read. */
#ifndef TOLLGATE_LIMIT_HEADERS_H
#define TOLLGATE_LIMIT_HEADERS_H

#include "headers.h"
#include "llm.h"
#include "quota.h"

/* One limit as clients see it. */
struct limit_row {
    const struct limit_row *next;
    const char *unit;  /* "requests", "tokens" */
    struct slice name; /* printable, without quotes and backslashes */
    uint64_t limit, remaining;
    int64_t reset_ms; /* until it is whole again */
    uint64_t window_s;
};

/* Sets the fields: x-ratelimit-* (OpenAI and others) or anthropic-ratelimit-*, and the IETF drafts'
 * RateLimit-Policy and RateLimit (draft-ietf-httpapi-ratelimit-headers). The drafts' name all rows,
 * the quota's first; the others have room for one of a unit: the one of which least remains. A
 * limit that is not enforced has no row. l and r: those of the quota, or NULL; rows may be NULL. */
void limit_headers_set(enum llm_api api, const struct limit_row *rows, const struct quota_limits *l,
                       const struct quota_result *r, struct headers *h);

#endif
