/* See master.h: /metrics, the sum over all workers, those that have gone included, but for the
 * gauges of their plugins: these are summed over the workers that live. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "log.h"
#include "master.h"
#include "metrics.h"

struct sums {
    struct counters counters;
    struct quota_stats quota;
    uint64_t connections;
};

static void sum(struct master *m, struct sums *s)
{
    for (unsigned i = 0; i < zone_slots(m->zone); i++) {
        const struct zone_slot *slot = zone_slot(m->zone, i);
        const uint64_t *from = (const uint64_t *)&slot->counters;
        for (size_t k = 0; k < sizeof s->counters / sizeof *from; k++)
            ((uint64_t *)&s->counters)[k] += from[k];
        from = (const uint64_t *)&slot->quota;
        for (size_t k = 0; k < sizeof s->quota / sizeof *from; k++)
            ((uint64_t *)&s->quota)[k] += from[k];
        s->connections += slot->connections;
    }
}

/* Adds to a metric with one label, or none (label NULL). */
static void labelled(struct metrics *all, enum metric_kind kind, const char *name, const char *help,
                     const char *label, const char *value, double v)
{
    const char *why;
    struct slice text = slice_of(value != NULL ? value : "");
    struct metric_spec spec = { .kind = kind, .name = name, .help = help, .own = true };
    spec.nlabels = label != NULL;
    spec.labels[0] = label;
    struct metric *m = metrics_register(all, &spec, &why);
    if (m != NULL)
        metric_add(metric_series(m, &text), v);
    else
        log_error("metric %s: %s", name, why); /* a mistake of ours, which a test shows */
}

static void dropped_metric(struct metrics *all, const char *log, const char *reason, uint64_t v)
{
    const char *why;
    const struct metric_spec spec = { .kind = METRIC_COUNTER,
                                      .name = "tollgate_log_dropped_total",
                                      .help = "Lines of logs that were dropped",
                                      .nlabels = 2,
                                      .labels = { "log", "reason" },
                                      .own = true };
    struct metric *m = metrics_register(all, &spec, &why);
    const struct slice values[] = { slice_of(log), slice_of(reason) };
    if (m != NULL)
        metric_add(metric_series(m, values), (double)v);
}

static void counter(struct metrics *all, const char *name, const char *help, uint64_t v)
{
    labelled(all, METRIC_COUNTER, name, help, NULL, NULL, (double)v);
}

static void gauge(struct metrics *all, const char *name, const char *help, double v)
{
    labelled(all, METRIC_GAUGE, name, help, NULL, NULL, v);
}

/* --- what workers count --- */

static void requests(struct metrics *all, const struct sums *s)
{
#define X(field, name, help) counter(all, "tollgate_" name, help, s->counters.field);
    COUNTERS(X)
#undef X
    const struct counters *c = &s->counters;
    double open = (double)c->requests - (double)c->ended - (double)c->lost;
    gauge(all, "tollgate_requests_in_flight", "Requests that have not ended", open > 0 ? open : 0);
    gauge(all, "tollgate_client_connections", "Client connections that are open",
          (double)s->connections);
}

static void handshakes(struct master *m, struct metrics *all, const struct counters *c)
{
    static const char *const reasons[] = { "certificate", "alert",   "http",    "not_tls",
                                           "cut",         "timeout", "protocol" };
    static const char name[] = "tollgate_tls_handshakes_total",
                      help[] = "TLS handshakes with clients, by version";
    const char *expires = plan_text(m->plan, "tls.expires");
    labelled(all, METRIC_COUNTER, name, help, "version", "1.2", (double)c->tls12);
    labelled(all, METRIC_COUNTER, name, help, "version", "1.3", (double)c->tls13);
    for (int i = 0; i < TLS_FAILURES; i++)
        labelled(all, METRIC_COUNTER, "tollgate_tls_handshake_failures_total",
                 "TLS handshakes with clients that failed", "reason", reasons[i],
                 (double)c->tls_failures[i]);
    if (expires != NULL)
        gauge(all, "tollgate_tls_certificate_expiry_timestamp_seconds",
              "When the first of the certificates for clients expires", strtod(expires, NULL));
}

static void quota(struct metrics *all, const struct quota_stats *q)
{
    const struct {
        const char *verdict;
        uint64_t n;
    } decisions[] = { { "admitted", q->admitted },
                      { "rate", q->refused_rate },
                      { "concurrency", q->refused_concurrency },
                      { "budget", q->refused_budget },
                      { "unavailable", q->unavailable } };
    for (size_t i = 0; i < sizeof decisions / sizeof *decisions; i++)
        labelled(all, METRIC_COUNTER, "tollgate_quota_decisions_total",
                 "Requests decided by quota; unavailable: Redis did not decide in time", "verdict",
                 decisions[i].verdict, (double)decisions[i].n);
    counter(all, "tollgate_quota_settled_total", "Settlements", q->settled);
    counter(all, "tollgate_quota_voided_total",
            "Admissions of unknown outcome that were taken back", q->voided);
    counter(all, "tollgate_quota_overspent_total", "Settlements above their reservation",
            q->overspent);
    counter(all, "tollgate_quota_lapsed_total", "Reservations whose lease was gone at renewal",
            q->lapsed);
    counter(all, "tollgate_quota_healed_total", "Slots of dead gateways that were freed",
            q->healed);
    counter(all, "tollgate_quota_lost_total", "Settlements that had to be given up", q->lost);
    gauge(all, "tollgate_quota_pending", "Settlements that wait for Redis", (double)q->pending);
}

static void shared_dictionary(struct master *m, struct metrics *all)
{
    struct shared_stats s;
    shared_stats(m->shared, &s);
    gauge(all, "tollgate_shared_size_bytes", "Bytes that entries of tg.shared may take",
          (double)s.size);
    gauge(all, "tollgate_shared_used_bytes", "Bytes that entries of tg.shared take",
          (double)s.bytes);
    gauge(all, "tollgate_shared_entries", "Entries of tg.shared", (double)s.entries);
    counter(all, "tollgate_shared_evictions_total",
            "Entries of tg.shared that went before their time", s.evictions);
    counter(all, "tollgate_shared_expired_total", "Entries of tg.shared that were found expired",
            s.expired);
    counter(all, "tollgate_shared_lock_misses_total",
            "Uses of tg.shared that did not get a lock in time", s.lock_misses);
    counter(all, "tollgate_shared_emptied_total",
            "Parts of tg.shared emptied since a worker died in them", s.emptied);
}

/* --- what the master knows --- */

/* Bytes of a process in memory; 0 where it has gone. */
static double resident(pid_t pid)
{
    char path[64];
    long pages = 0;
    snprintf(path, sizeof path, "/proc/%d/statm", (int)pid);
    FILE *f = fopen(path, "re");
    if (f == NULL)
        return 0;
    if (fscanf(f, "%*s %ld", &pages) != 1)
        pages = 0;
    fclose(f);
    return (double)pages * (double)sysconf(_SC_PAGESIZE);
}

static void workers(struct master *m, struct metrics *all)
{
    static const char *const reasons[EXIT_REASONS] = { "exit", "signal", "watchdog" };
    char worker[16];
    for (const struct member *w = m->members; w != NULL; w = w->next) {
        const struct zone_slot *s = zone_slot(m->zone, w->slot);
        snprintf(worker, sizeof worker, "%u", w->place);
#define GAUGE(name, help, v)                                                                       \
    labelled(all, METRIC_GAUGE, "tollgate_worker_" name, help, "worker", worker, (double)(v))
        GAUGE("resident_memory_bytes", "Memory of a worker's process", resident(w->pid));
        GAUGE("lua_memory_bytes", "Memory of a worker's current Lua state", s->lua_bytes);
        GAUGE("buffer_bytes", "Memory of a worker's buffers", s->buffers);
        GAUGE("buffered_bytes",
              "Bytes that a worker keeps of bodies and answers, as limits.buffered counts them",
              s->buffered);
        GAUGE("client_connections", "Client connections that are open in a worker", s->connections);
        GAUGE("requests_in_flight", "Requests in a worker that have not ended", s->exchanges);
        GAUGE("generations", "Generations of the configuration that live in a worker",
              s->generations);
        GAUGE("redis_usable", "1 where a worker's connection to Redis is usable", s->redis_usable);
#undef GAUGE
    }
    for (int i = 0; i < EXIT_REASONS; i++)
        labelled(all, METRIC_COUNTER, "tollgate_worker_restarts_total",
                 "Workers that were replaced, by how they ended", "reason", reasons[i],
                 (double)zone_totals(m->zone)->restarts[i]);
}

static void configuration(struct master *m, struct metrics *all)
{
    const struct zone_totals *t = zone_totals(m->zone);
    static const char reloads[] = "tollgate_reloads_total", help[] = "Reloads, by outcome";
    labelled(all, METRIC_COUNTER, reloads, help, "outcome", "ok", (double)t->reloads);
    labelled(all, METRIC_COUNTER, reloads, help, "outcome", "failed", (double)t->reload_failures);
    gauge(all, "tollgate_last_reload_successful",
          "1 unless the last reload changed nothing, for a fault",
          m->last_reload.at == 0 || m->last_reload.ok);
    gauge(all, "tollgate_generation", "Generation of the configuration that serves",
          (double)m->plan->number);
    labelled(all, METRIC_GAUGE, "tollgate_config_info", "Hash of the configuration that serves",
             "hash", m->plan->hash, 1);
    for (const struct quarantined *q = m->quarantine; q != NULL; q = q->next)
        labelled(all, METRIC_GAUGE, "tollgate_plugin_quarantined",
                 "1 where a plugin is quarantined", "plugin", q->plugin, q->active);
}

static void add_target(void *arg, const char *name, enum target_health health, uint64_t until)
{
    (void)until;
    if (health != TARGET_HEALTH_UNKNOWN)
        labelled(arg, METRIC_GAUGE, "tollgate_target_healthy",
                 "1 where the health check of a target finds it up, 0 where it does not", "target",
                 name, health == TARGET_HEALTH_UP);
}

/* lines_failed: what the log writer could not write. */
static void logs(struct master *m, struct metrics *all)
{
    const struct zone_totals *t = zone_totals(m->zone);
    struct access_counts sum = { 0 };
    uint64_t entries = t->log_dropped;
    for (unsigned i = 0; i < zone_slots(m->zone); i++) {
        const struct zone_slot *s = zone_slot(m->zone, i);
        sum.sampled += s->access.sampled;
        sum.dropped += s->access.dropped;
        sum.died += s->access.died;
        entries += s->log_dropped;
    }
    const struct {
        const char *log, *reason;
        uint64_t n;
    } dropped[] = { { "access", "slow_reader", sum.dropped },
                    { "access", "write_failed", t->lines_failed },
                    { "access", "worker_died", sum.died },
                    { "error", "slow_reader", entries } };
    counter(all, "tollgate_access_log_lines_total", "Lines of the access log that were written",
            t->lines_written);
    counter(all, "tollgate_access_log_sampled_total",
            "Requests without a line in the access log, by log.access.sample", sum.sampled);
    for (size_t i = 0; i < sizeof dropped / sizeof *dropped; i++)
        dropped_metric(all, dropped[i].log, dropped[i].reason, dropped[i].n);
}

static void process(struct master *m, struct metrics *all)
{
    labelled(all, METRIC_GAUGE, "tollgate_build_info", "Version of the gateway", "version",
             TOLLGATE_VERSION, 1);
    gauge(all, "tollgate_ready", "1 where requests can be served", master_not_ready(m) == NULL);
    gauge(all, "process_start_time_seconds", "Start of the gateway since the epoch",
          (double)m->started / 1000);
    gauge(all, "process_resident_memory_bytes", "Memory of the master's process",
          resident(getpid()));
}

void master_metrics(struct master *m, struct buf *out)
{
    struct metrics *all = metrics_new();
    struct sums s = { .connections = 0 };
    sum(m, &s);
    process(m, all);
    configuration(m, all);
    workers(m, all);
    requests(all, &s);
    handshakes(m, all, &s.counters);
    quota(all, &s.quota);
    shared_dictionary(m, all);
    logs(m, all);
    target_table_each(zone_targets(m->zone), zone_now(), add_target, all);
    for (unsigned i = 0; i < zone_slots(m->zone); i++)
        metrics_merge(all, zone_metrics(m->zone, i), true);
    metrics_merge(all, zone_metrics_gone(m->zone), false);
    metrics_write(all, out);
    metrics_free(all);
}

void master_metrics_tell(struct master *m, struct member *w, uint64_t id)
{
    struct buf text;
    int fd = memfd_create("tollgate metrics", MFD_CLOEXEC);
    buf_init(&text);
    master_metrics(m, &text);
    if (fd < 0 || write(fd, text.p, text.n) != (ssize_t)text.n)
        log_error("no memory for the metrics that a plugin asked for: %s", strerror(errno));
    else
        control_send(w->control, fd, "metrics %" PRIu64, id);
    if (fd >= 0)
        close(fd);
    buf_deinit(&text);
}
