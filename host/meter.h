/* What a request is charged, once it has ended: the usage that the origin reported, or, where it
 * reported none, what the policy says. Pure arithmetic on plain data. */
#ifndef TOLLGATE_METER_H
#define TOLLGATE_METER_H

#include <stdbool.h>
#include <stdint.h>

#include "llm.h"

enum meter_policy {
    METER_SEEN,    /* the prompt, as the origin reported it or else as estimated, and the text that
                    * was relayed, at most what was reserved for it */
    METER_RESERVED /* the whole reservation, and never less than METER_SEEN */
};

/* Why a request is charged what it is. From METER_CLIENT_GONE on, usage is missing and the policy
 * decides. */
enum meter_cause {
    METER_USAGE,        /* as reported, even above the reservation */
    METER_NOT_REACHED,  /* no byte went to an origin: 0 */
    METER_ORIGIN_ERROR, /* the origin refused or failed, with a status: 0 */
    METER_CLIENT_GONE,
    METER_ERROR_EVENT, /* an error in a stream or body whose status said success */
    METER_CUT_OFF,     /* the answer, or the connection before it, ended too early */
    METER_UNREADABLE,  /* content-encoded, or no JSON */
    METER_NO_USAGE,    /* a complete answer that has none */
    METER_CAUSES
};

/* What was known of the request before it went out. */
struct meter {
    uint64_t prompt_tokens;
    uint64_t reserve;
    double bytes_per_token;
    enum meter_policy on_missing_usage;
};

/* What became of it. */
struct meter_facts {
    bool reached_origin; /* some byte of it may have been sent to an origin */
    int status;          /* of the final answer's head; 0 where none came */
    bool complete;       /* the answer came to its proper end */
    bool client_gone;    /* the client left before that */
    enum llm_body body;  /* how the answer could be read */
};

struct meter_charge {
    uint64_t tokens;
    enum meter_cause cause;
};

/* A background request goes on behind its answer, where nobody reads what it uses: so it is charged
 * as reserved, whatever the policy, where its answer has no usage. */
struct meter meter_of(const struct llm_request *r, double bytes_per_token,
                      enum meter_policy on_missing_usage);
/* usage is NULL where no answer was read. */
struct meter_charge meter_charge(const struct meter *m, const struct llm_usage *usage,
                                 const struct meter_facts *facts);
/* A constant text for metrics and logs: "usage", "not_reached", …. */
const char *meter_cause_name(enum meter_cause cause);
/* "seen" or "reserved"; false where it is neither. */
bool meter_policy_of_name(struct slice name, enum meter_policy *out);

#endif
