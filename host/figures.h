/* What the host itself counts with labels, in the registry that plugins count in, so that the
 * master sums it over workers and a worker's death loses nothing.
 *
 * Who counts often holds a handle (of a route, a plugin's phase, a target), which is asked for when
 * a generation is loaded: to count is then to add to a word. Handles live as long as the figures,
 * over all generations; the same names give the same handle. Names are bounded in number: what
 * comes beyond is counted as "other". A NULL figures, or a NULL handle, counts nothing. */
#ifndef TOLLGATE_FIGURES_H
#define TOLLGATE_FIGURES_H

#include <stdbool.h>
#include <stdint.h>

#include "metrics.h"

enum {
    FIGURES_ROUTES = 500,
    FIGURES_TARGETS = 1000,
    FIGURES_HOOKS = 500,
    FIGURES_MODELS = 200,
    FIGURES_COMMANDS = 50,
    FIGURES_VARIANTS = 32,  /* of status and end, or of refusals, on one route */
    FIGURES_MODEL_NAME = 64 /* bytes */
};

struct figures;
struct figures_route;
struct figures_hook;
struct figures_target;

/* m is borrowed until figures_free. */
struct figures *figures_new(struct metrics *m);
void figures_free(struct figures *f); /* or NULL */

/* --- requests (figures_request.c) --- */

struct figures_end {
    int status;          /* 0: no head was sent, or was to be */
    const char *ended;   /* static text */
    const char *refusal; /* NULL: none; copied where it is new */
    uint64_t ms, first_byte_ms;
    bool first_byte; /* the origin's answer had begun */
};

/* name: "" for requests that no route took. */
struct figures_route *figures_route(struct figures *f, const char *name);
void figures_ended(struct figures_route *r, const struct figures_end *e);

struct figures_tokens {
    uint64_t reserved_input, reserved_output; /* 0 where nothing was reserved */
    uint64_t input, output;                   /* charged */
    uint64_t over_reserved;
};

/* The model's name comes from a request: it gets series of its own only where it is `known` (an
 * origin answered it with success, or the configuration names it) and looks like a model's name. */
void figures_tokens(struct figures *f, struct slice model, bool known,
                    const struct figures_tokens *t);
/* cause: static text. */
void figures_usage_missing(struct figures *f, const char *cause);

/* --- parts of the gateway (figures_parts.c) --- */

struct figures_hook *figures_hook(struct figures *f, const char *plugin, const char *phase);
/* Counts a call; returns where the seconds that its Lua runs are to be added. */
double *figures_hook_called(struct figures_hook *h);
void figures_hook_failed(struct figures_hook *h);

struct figures_target *figures_target(struct figures *f, const char *route, const char *target);
void figures_attempt(struct figures_target *t);
/* error: static text. */
void figures_attempt_failed(struct figures_target *t, const char *error);

/* A command to Redis has ended, `ns` after it was sent (0: it was not). script: its name, or NULL
 * for a plain command; error: NULL, or static text. */
void figures_redis(struct figures *f, const char *script, uint64_t ns, const char *error);
void figures_batch(struct figures *f, bool settle, unsigned requests);

#endif
