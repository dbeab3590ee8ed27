/* The header fields that tell a client its limits and what is left of them, in the form that its
 * API's clients read. */
#ifndef TOLLGATE_LIMIT_HEADERS_H
#define TOLLGATE_LIMIT_HEADERS_H

#include "headers.h"
#include "llm.h"
#include "quota.h"

/* Sets the fields: x-ratelimit-* (OpenAI and others) or anthropic-ratelimit-*, and the IETF drafts'
 * RateLimit-Policy and RateLimit (draft-ietf-httpapi-ratelimit-headers). A limit that is not
 * enforced has none. */
void limit_headers_set(enum llm_api api, const struct quota_limits *l, const struct quota_result *r,
                       struct headers *h);

#endif
