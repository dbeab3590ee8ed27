/* Private to figures*.c. */
#ifndef TOLLGATE_FIGURES_INTERNAL_H
#define TOLLGATE_FIGURES_INTERNAL_H

#include "figures.h"

enum { FIGURES_CLASSES = 6 }; /* of status; 0: none */

/* What the handles begin with. */
struct figures_name {
    struct figures_name *chain;
    uint64_t hash;
    struct figures *f;
    char *key; /* owned; parts of it end in a NUL each */
    size_t nkey;
};

struct figures_names {
    struct figures_name **slots, *other;
    uint32_t nslots, n, limit;
    size_t size; /* of a handle */
};

/* A series of one handle by what varies, for few that are used again and again. */
struct figures_variant {
    struct figures_variant *next;
    const char *text; /* static, or owned by the list */
    int status;
    double *value;
};

struct figures {
    struct metrics *metrics;
    uint64_t secret[2];
    struct figures_names routes, targets, hooks, models, commands;
    struct metric *ended, *refusals, *duration, *first_byte;
    struct metric *reserved, *used, *over_reserved, *usage_missing;
    struct metric *plugin_seconds, *plugin_calls, *plugin_errors;
    struct metric *attempts, *attempt_errors;
    struct metric *redis_seconds, *redis_errors, *batches;
    struct metric_series *batch[2];
};

struct figures_route {
    struct figures_name name;
    struct metric_series *duration[FIGURES_CLASSES], *first_byte[FIGURES_CLASSES];
    struct figures_variant *ends, *refusals;
};

struct figures_model {
    struct figures_name name;
    double *reserved[2], *used[2], *over_reserved;
};

struct figures_hook {
    struct figures_name name;
    double *seconds, *calls, *errors; /* errors: NULL until there is one */
};

struct figures_target {
    struct figures_name name;
    double *attempts;
    struct figures_variant *errors;
};

struct figures_command {
    struct figures_name name;
    struct metric_series *seconds;
};

/* figures.c: the handle of a key, zeroed where it is new; "other" for all parts where there are too
 * many. With `find` NULL is returned instead of a new one. */
struct figures_name *figures_name(struct figures *f, struct figures_names *names, struct slice key,
                                  int parts, bool find);
/* Parts of a handle's key. */
const char *figures_part(const struct figures_name *n, int i);
/* The series of up to three texts. */
struct metric_series *figures_series(struct metric *m, const char *a, const char *b, const char *c);
double *figures_value(struct metric *m, const char *a, const char *b, const char *c);

#endif
