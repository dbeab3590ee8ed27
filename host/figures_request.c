/* See figures.h: requests that ended, and their tokens. */
#include <stdio.h>

#include "chars.h"
#include "figures_internal.h"
#include "mem.h"

/* --- ends --- */

struct figures_route *figures_route(struct figures *f, const char *name)
{
    return f == NULL
               ? NULL
               : (struct figures_route *)figures_name(f, &f->routes, slice_of(name), 1, false);
}

static double *variant_new(struct figures_variant **list, const char *text, int status,
                           double *value)
{
    struct figures_variant *v = mem_zalloc(sizeof *v);
    v->text = text;
    v->status = status;
    v->value = value;
    v->next = *list;
    *list = v;
    return value;
}

/* Of status and end: the number of statuses is the origin's choice, so it is bounded. */
static double *end_value(struct figures_route *r, int status, const char *ended)
{
    char code[16];
    int n = 0;
    for (struct figures_variant *v = r->ends; v != NULL; v = v->next, n++) {
        if (v->status == status && v->text == ended)
            return v->value;
    }
    snprintf(code, sizeof code, status != 0 ? "%d" : "none", status);
    if (n >= FIGURES_VARIANTS)
        snprintf(code, sizeof code, "other");
    double *value = figures_value(r->name.f->ended, r->name.key, code, ended);
    return n >= FIGURES_VARIANTS ? value : variant_new(&r->ends, ended, status, value);
}

static double *refusal_value(struct figures_route *r, const char *limit)
{
    int n = 0;
    for (struct figures_variant *v = r->refusals; v != NULL; v = v->next, n++) {
        if (strcmp(v->text, limit) == 0)
            return v->value;
    }
    if (n >= FIGURES_VARIANTS)
        return figures_value(r->name.f->refusals, r->name.key, "other", NULL);
    return variant_new(&r->refusals, mem_strdup(limit), 0,
                       figures_value(r->name.f->refusals, r->name.key, limit, NULL));
}

static void observe(struct figures_route *r, struct metric *m, struct metric_series **of, int class,
                    uint64_t ms)
{
    static const char *const names[FIGURES_CLASSES] = { "none", "1xx", "2xx", "3xx", "4xx", "5xx" };
    if (of[class] == NULL)
        of[class] = figures_series(m, r->name.key, names[class], NULL);
    metric_observe(m, of[class], (double)ms / 1000);
}

void figures_ended(struct figures_route *r, const struct figures_end *e)
{
    if (r == NULL)
        return;
    int class = e->status >= 100 && e->status <= 599 ? e->status / 100 : 0;
    *end_value(r, e->status, e->ended) += 1;
    if (e->refusal != NULL)
        *refusal_value(r, e->refusal) += 1;
    observe(r, r->name.f->duration, r->duration, class, e->ms);
    if (e->first_byte)
        observe(r, r->name.f->first_byte, r->first_byte, class, e->first_byte_ms);
}

/* --- tokens --- */

static bool looks_like_model(struct slice name)
{
    if (name.n == 0 || name.n > FIGURES_MODEL_NAME)
        return false;
    for (size_t i = 0; i < name.n; i++) {
        char c = name.p[i];
        if (!char_is(c, CHAR_UNRESERVED) && c != ':' && c != '/' && c != '@' && c != '+')
            return false;
    }
    return true;
}

static struct figures_model *model_of(struct figures *f, struct slice name, bool known)
{
    struct figures_name *h = NULL;
    if (looks_like_model(name))
        h = figures_name(f, &f->models, name, 1, !known);
    if (h == NULL)
        h = figures_name(f, &f->models, SLICE("other"), 1, false);
    return (struct figures_model *)h;
}

static void add(struct metric *m, double **to, const char *model, const char *direction, uint64_t n)
{
    if (n == 0)
        return;
    if (*to == NULL)
        *to = figures_value(m, model, direction, NULL);
    **to += (double)n;
}

void figures_tokens(struct figures *f, struct slice model, bool known,
                    const struct figures_tokens *t)
{
    if (f == NULL)
        return;
    struct figures_model *m = model_of(f, model, known);
    const char *name = m->name.key;
    add(f->reserved, &m->reserved[0], name, "input", t->reserved_input);
    add(f->reserved, &m->reserved[1], name, "output", t->reserved_output);
    add(f->used, &m->used[0], name, "input", t->input);
    add(f->used, &m->used[1], name, "output", t->output);
    add(f->over_reserved, &m->over_reserved, name, NULL, t->over_reserved);
}

void figures_usage_missing(struct figures *f, const char *cause)
{
    if (f != NULL)
        *figures_value(f->usage_missing, cause, NULL, NULL) += 1;
}
