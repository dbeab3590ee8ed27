/* See metrics.h. A series is found by one hash of its values, put together in a buffer on the
 * stack: a call allocates only where a series is new. Its labels' text is made then, once. */
#include "metrics_internal.h"

#include <string.h>
#include <sys/random.h>

#include "log.h"
#include "mem.h"
#include "metrics_text.h"
#include "siphash.h"

enum { TABLE_FIRST = 16 };

/* --- the registry --- */

struct metrics *metrics_new(void)
{
    struct metrics *m = mem_zalloc(sizeof *m);
    if (getentropy(m->secret, sizeof m->secret) != 0)
        log_warn("metrics: the system gives no random bytes");
    return m;
}

struct metrics *metrics_new_in(struct metrics_area *a)
{
    struct metrics *m = metrics_new();
    m->area = a;
    return m;
}

static void series_free(struct metric_series *s)
{
    mem_free(s->key);
    mem_free(s->labels);
    if (s->value == &s->own)
        mem_free(s->buckets);
    mem_free(s);
}

static void metric_free(struct metric *m)
{
    for (uint32_t i = 0; i < m->n; i++)
        series_free(m->all[i]);
    if (m->other != NULL && !m->other_listed)
        series_free(m->other);
    for (int i = 0; i < m->spec.nlabels; i++)
        mem_free((char *)(uintptr_t)m->spec.labels[i]);
    mem_free((char *)(uintptr_t)m->spec.name);
    mem_free((char *)(uintptr_t)m->spec.help);
    mem_free(m->slots);
    mem_free(m->all);
    mem_free(m);
}

void metrics_free(struct metrics *m)
{
    if (m == NULL)
        return;
    for (uint32_t i = 0; i < m->n; i++)
        metric_free(m->all[i]);
    mem_free(m->all);
    mem_free(m);
}

static const char *difference(const struct metric_spec *a, const struct metric_spec *b)
{
    if (a->kind != b->kind)
        return "it is registered already, as another kind of metric";
    if (a->nlabels != b->nlabels)
        return "it is registered already, with other labels";
    for (int i = 0; i < a->nlabels; i++) {
        if (strcmp(a->labels[i], b->labels[i]) != 0)
            return "it is registered already, with other labels";
    }
    if (a->nbuckets != b->nbuckets ||
        memcmp(a->buckets, b->buckets, (size_t)a->nbuckets * sizeof a->buckets[0]) != 0)
        return "it is registered already, with other buckets";
    return NULL;
}

static struct metric *metric_new(struct metrics *registry, const struct metric_spec *spec)
{
    struct metric *m = mem_zalloc(sizeof *m);
    m->registry = registry;
    m->spec = *spec;
    m->spec.name = mem_strdup(spec->name);
    m->spec.help = mem_strdup(spec->help);
    for (int i = 0; i < spec->nlabels; i++)
        m->spec.labels[i] = mem_strdup(spec->labels[i]);
    m->limit = spec->series != 0 ? spec->series : METRICS_SERIES;
    if (registry->area != NULL)
        metrics_place(registry, m);
    if (spec->nlabels == 0)
        metric_series(m, NULL); /* so that it is shown as 0 before it is counted */
    return m;
}

struct metric *metrics_register(struct metrics *m, const struct metric_spec *spec, const char **why)
{
    *why = metrics_text_fault(spec);
    if (*why != NULL)
        return NULL;
    for (uint32_t i = 0; i < m->n; i++) {
        if (strcmp(m->all[i]->spec.name, spec->name) != 0)
            continue;
        *why = difference(&m->all[i]->spec, spec);
        return *why == NULL ? m->all[i] : NULL;
    }
    if (m->n == METRICS_MAX) {
        *why = "there are too many metrics; is its name made of what a request says? Use a label";
        return NULL;
    }
    m->all = mem_realloc(m->all, (m->n + 1) * sizeof *m->all);
    return m->all[m->n++] = metric_new(m, spec);
}

enum metric_kind metric_kind(const struct metric *m)
{
    return m->spec.kind;
}

int metric_nlabels(const struct metric *m)
{
    return m->spec.nlabels;
}

const char *metric_label(const struct metric *m, int i)
{
    return m->spec.labels[i];
}

const char *metric_name(const struct metric *m)
{
    return m->spec.name;
}

/* --- series --- */

/* NULL where there is no room in the area; with `must`, it is counted for nobody then. */
static struct metric_series *series_new(const struct metric *m, const char *key, size_t n,
                                        bool must)
{
    struct metric_series *s = mem_zalloc(sizeof *s);
    struct buf labels;
    s->key = mem_strndup(key, n);
    s->nkey = n;
    buf_init(&labels);
    for (int i = 0; i < m->spec.nlabels; i++) {
        struct slice value = { key + 1, (unsigned char)key[0] };
        metrics_text_label(&labels, m->spec.labels[i], value);
        key += 1 + value.n;
    }
    s->labels = mem_strndup(labels.n > 0 ? labels.p : "", labels.n);
    buf_deinit(&labels);
    if (metrics_place_series(m, s, must))
        return s;
    series_free(s);
    return NULL;
}

static void put(struct metric *m, struct metric_series *s)
{
    struct metric_series **slot = &m->slots[s->hash & (m->nslots - 1)];
    s->chain = *slot;
    *slot = s;
}

static void grow(struct metric *m)
{
    m->nslots = m->nslots == 0 ? TABLE_FIRST : m->nslots * 2;
    mem_free(m->slots);
    m->slots = mem_zalloc(m->nslots * sizeof *m->slots);
    m->all = mem_realloc(m->all, m->nslots * sizeof *m->all);
    for (uint32_t i = 0; i < m->n; i++)
        put(m, m->all[i]);
}

static struct metric_series *find(const struct metric *m, uint64_t hash, const char *key, size_t n)
{
    struct metric_series *s = m->nslots > 0 ? m->slots[hash & (m->nslots - 1)] : NULL;
    while (s != NULL && (s->hash != hash || s->nkey != n || memcmp(s->key, key, n) != 0))
        s = s->chain;
    return s;
}

/* All labels "other". */
static struct metric_series *other(struct metric *m)
{
    static const char word[] = "\5other";
    char key[METRICS_LABELS * (sizeof word - 1)];
    size_t n = 0;
    if (m->other != NULL)
        return m->other;
    for (int i = 0; i < m->spec.nlabels; i++, n += sizeof word - 1)
        memcpy(key + n, word, sizeof word - 1);
    if (m->n >= m->limit)
        log_warn(
            "metric %s: more than %u combinations of labels; the others are counted as \"other\"",
            m->spec.name, m->limit);
    else
        log_warn("metric %s: no room for more combinations of labels; the others are counted as "
                 "\"other\"",
                 m->spec.name);
    m->other = find(m, siphash(m->registry->secret, (struct slice){ key, n }), key, n);
    m->other_listed = m->other != NULL;
    if (!m->other_listed)
        m->other = series_new(m, key, n, true);
    return m->other;
}

struct metric_series *metric_series(struct metric *m, const struct slice *values)
{
    char key[METRICS_LABELS * (METRICS_VALUE + 1)];
    size_t n = 0;
    for (int i = 0; i < m->spec.nlabels; i++) {
        size_t length = metrics_text_value(key + n + 1, values[i]);
        key[n] = (char)length;
        n += 1 + length;
    }
    uint64_t hash = siphash(m->registry->secret, (struct slice){ key, n });
    struct metric_series *s = find(m, hash, key, n);
    if (s != NULL)
        return s;
    if (m->n >= m->limit)
        return other(m);
    s = series_new(m, key, n, m->spec.nlabels == 0);
    if (s == NULL)
        return other(m);
    if (m->n == m->nslots)
        grow(m);
    s->hash = hash;
    put(m, s);
    return m->all[m->n++] = s;
}

void metric_add(struct metric_series *s, double v)
{
    *s->value += v;
}

void metric_set(struct metric_series *s, double v)
{
    *s->value = v;
}

double *metric_value(struct metric_series *s)
{
    return s->value;
}

void metric_observe(const struct metric *m, struct metric_series *s, double v)
{
    int i = 0;
    while (i < m->spec.nbuckets && v > m->spec.buckets[i])
        i++;
    s->buckets[i]++;
    *s->value += v;
}

void metric_merge(const struct metric *m, struct metric_series *s, double value,
                  const uint64_t *counts)
{
    *s->value += value;
    for (int i = 0; m->spec.kind == METRIC_HISTOGRAM && i <= m->spec.nbuckets; i++)
        s->buckets[i] += counts[i];
}
