/* See master.h: /metrics, the sum over all workers, those that have gone included, but for the
 * gauges of their plugins: these are summed over the workers that live. */
#include <inttypes.h>

#include "master.h"
#include "metrics.h"

static void sum(struct master *m, struct counters *c, struct quota_stats *q, uint64_t *connections)
{
    for (unsigned i = 0; i < zone_slots(m->zone); i++) {
        const struct zone_slot *s = zone_slot(m->zone, i);
        const uint64_t *from = (const uint64_t *)&s->counters;
        for (size_t k = 0; k < sizeof *c / sizeof *from; k++)
            ((uint64_t *)c)[k] += from[k];
        from = (const uint64_t *)&s->quota;
        for (size_t k = 0; k < sizeof *q / sizeof *from; k++)
            ((uint64_t *)q)[k] += from[k];
        *connections += s->connections;
    }
}

static void metric(struct buf *out, const char *name, const char *type, const char *help,
                   uint64_t v)
{
    buf_printf(out, "# HELP tollgate_%s %s\n# TYPE tollgate_%s %s\ntollgate_%s %" PRIu64 "\n", name,
               help, name, type, name, v);
}

static void shared_metrics(struct master *m, struct buf *out)
{
    struct shared_stats s;
    shared_stats(m->shared, &s);
    metric(out, "shared_size_bytes", "gauge", "Bytes that entries of tg.shared may take", s.size);
    metric(out, "shared_used_bytes", "gauge", "Bytes that entries of tg.shared take", s.bytes);
    metric(out, "shared_entries", "gauge", "Entries of tg.shared", s.entries);
    metric(out, "shared_evictions_total", "counter",
           "Entries of tg.shared that went before their time", s.evictions);
    metric(out, "shared_expired_total", "counter", "Entries of tg.shared that were found expired",
           s.expired);
    metric(out, "shared_lock_misses_total", "counter",
           "Uses of tg.shared that did not get a lock in time", s.lock_misses);
    metric(out, "shared_emptied_total", "counter",
           "Parts of tg.shared emptied since a worker died in them", s.emptied);
}

/* What plugins count, by name and labels: the sum over workers. */
static void plugin_metrics(struct master *m, struct buf *out)
{
    struct metrics *all = metrics_new();
    for (unsigned i = 0; i < zone_slots(m->zone); i++)
        metrics_merge(all, zone_metrics(m->zone, i), true);
    metrics_merge(all, zone_metrics_gone(m->zone), false);
    metrics_write(all, out);
    metrics_free(all);
}

void master_metrics(struct master *m, struct buf *out)
{
    struct counters c = { 0 };
    struct quota_stats q = { 0 };
    uint64_t connections = 0;
    sum(m, &c, &q, &connections);
    counters_write(&c, out);
    metric(out, "quota_admitted_total", "counter", "Requests admitted in Redis", q.admitted);
    metric(out, "quota_refused_rate_total", "counter", "Requests refused by the bucket",
           q.refused_rate);
    metric(out, "quota_refused_concurrency_total", "counter", "Requests refused by concurrency",
           q.refused_concurrency);
    metric(out, "quota_refused_budget_total", "counter", "Requests refused by the budget",
           q.refused_budget);
    metric(out, "quota_unavailable_total", "counter",
           "Admissions that Redis did not decide in time", q.unavailable);
    metric(out, "quota_settled_total", "counter", "Settlements", q.settled);
    metric(out, "quota_voided_total", "counter",
           "Admissions of unknown outcome that were taken back", q.voided);
    metric(out, "quota_overspent_total", "counter", "Settlements above their reservation",
           q.overspent);
    metric(out, "quota_lapsed_total", "counter", "Reservations whose lease was gone at renewal",
           q.lapsed);
    metric(out, "quota_healed_total", "counter", "Slots of dead gateways that were freed",
           q.healed);
    metric(out, "quota_lost_total", "counter", "Settlements that had to be given up", q.lost);
    metric(out, "client_connections", "gauge", "Client connections that are open", connections);
    metric(out, "generation", "gauge", "Generation of the configuration that serves",
           m->plan->number);
    metric(out, "reloads_total", "counter", "Reloads that went well", m->reloads);
    metric(out, "reload_failures_total", "counter", "Reloads that changed nothing, for a fault",
           m->reload_failures);
    shared_metrics(m, out);
    plugin_metrics(m, out);
}
