/* See figures.h: plugins, targets, Redis. */
#include <stdio.h>

#include "figures_internal.h"
#include "mem.h"

enum { KEY = 384 }; /* bytes of two names */

static struct slice two(char key[KEY], const char *a, const char *b)
{
    int n = snprintf(key, KEY, "%.*s%c%.*s", METRICS_VALUE, a, 0, METRICS_VALUE, b);
    return (struct slice){ key, (size_t)n };
}

struct figures_hook *figures_hook(struct figures *f, const char *plugin, const char *phase)
{
    char key[KEY];
    if (f == NULL)
        return NULL;
    struct figures_hook *h =
        (struct figures_hook *)figures_name(f, &f->hooks, two(key, plugin, phase), 2, false);
    if (h->seconds == NULL) {
        const char *a = figures_part(&h->name, 0), *b = figures_part(&h->name, 1);
        h->seconds = figures_value(f->plugin_seconds, a, b, NULL);
        h->calls = figures_value(f->plugin_calls, a, b, NULL);
    }
    return h;
}

double *figures_hook_called(struct figures_hook *h)
{
    if (h == NULL)
        return NULL;
    *h->calls += 1;
    return h->seconds;
}

void figures_hook_failed(struct figures_hook *h)
{
    if (h == NULL)
        return;
    if (h->errors == NULL)
        h->errors = figures_value(h->name.f->plugin_errors, figures_part(&h->name, 0),
                                  figures_part(&h->name, 1), NULL);
    *h->errors += 1;
}

struct figures_target *figures_target(struct figures *f, const char *route, const char *target)
{
    char key[KEY];
    if (f == NULL)
        return NULL;
    struct figures_target *t =
        (struct figures_target *)figures_name(f, &f->targets, two(key, route, target), 2, false);
    if (t->attempts == NULL)
        t->attempts =
            figures_value(f->attempts, figures_part(&t->name, 0), figures_part(&t->name, 1), NULL);
    return t;
}

void figures_attempt(struct figures_target *t)
{
    if (t != NULL)
        *t->attempts += 1;
}

void figures_attempt_failed(struct figures_target *t, const char *error)
{
    if (t == NULL)
        return;
    struct figures_variant *v = t->errors;
    while (v != NULL && strcmp(v->text, error) != 0)
        v = v->next;
    if (v == NULL) {
        v = mem_zalloc(sizeof *v);
        v->text = error;
        v->value = figures_value(t->name.f->attempt_errors, figures_part(&t->name, 0),
                                 figures_part(&t->name, 1), error);
        v->next = t->errors;
        t->errors = v;
    }
    *v->value += 1;
}

void figures_redis(struct figures *f, const char *script, uint64_t ns, const char *error)
{
    if (f == NULL)
        return;
    if (error != NULL)
        *figures_value(f->redis_errors, error, NULL, NULL) += 1;
    if (ns == 0)
        return;
    struct slice name = slice_of(script != NULL ? script : "command");
    struct figures_command *c =
        (struct figures_command *)figures_name(f, &f->commands, name, 1, false);
    if (c->seconds == NULL)
        c->seconds = figures_series(f->redis_seconds, c->name.key, NULL, NULL);
    metric_observe(f->redis_seconds, c->seconds, (double)ns / 1e9);
}

void figures_batch(struct figures *f, bool settle, unsigned requests)
{
    if (f != NULL)
        metric_observe(f->batches, f->batch[settle], requests);
}
