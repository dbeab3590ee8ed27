/* See master.h: what the master knows, as JSON (status), as text for people, and in one sentence
 * (readiness). */
#include <inttypes.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "json.h"
#include "log.h"
#include "master.h"

/* --- readiness --- */

const char *master_not_ready(struct master *m)
{
    static char text[ZONE_TEXT + 16];
    const char *why = "no worker serves";
    if (m->ending)
        return "draining";
    for (unsigned i = 0; i < zone_slots(m->zone); i++) {
        const struct zone_slot *s = zone_slot(m->zone, i);
        if (s->state != ZONE_SERVING)
            continue;
        if (s->redis_usable)
            return master_routing_stale(m);
        snprintf(text, sizeof text, "redis: %s", s->redis_problem);
        why = text;
    }
    return why;
}

/* --- status --- */

static void member_text(struct buf *out, const char *name, const char *value)
{
    buf_printf(out, "\"%s\":", name);
    json_quote(out, slice_of(value));
}

static void workers(struct master *m, struct buf *out)
{
    static const char *const states[] = { "starting", "serving", "draining" };
    const char *comma = "";
    buf_add_text(out, "\"workers\":[");
    for (unsigned i = 0; i < m->places; i++) {
        for (const struct member *w = m->members; w != NULL; w = w->next) {
            const struct zone_slot *s = zone_slot(m->zone, w->slot);
            if (w->place != i)
                continue;
            buf_printf(out,
                       "%s{\"worker\":%u,\"pid\":%d,\"state\":\"%s\",\"generation\":%" PRIu64
                       ",\"generations\":%" PRIu64 ",\"connections\":%" PRIu64
                       ",\"requests\":%" PRIu64 ",\"lua_bytes\":%" PRIu64
                       ",\"turned_ms_ago\":%" PRIu64 ",\"uptime_s\":%" PRId64
                       ",\"redis_usable\":%s}",
                       comma, w->place, (int)w->pid, states[w->state], s->generation,
                       s->generations, s->connections, s->exchanges, s->lua_bytes,
                       zone_now() > s->beat ? zone_now() - s->beat : 0,
                       s->started != 0 ? (loop_wall_ms() - (int64_t)s->started) / 1000 : 0,
                       s->redis_usable ? "true" : "false");
            comma = ",";
        }
    }
    buf_add_text(out, "]");
}

struct files {
    struct buf *out;
    const char *comma;
};

/* Code and key files. What a configuration reads by file "…" is left out: it may be a secret, and
 * short enough to be guessed by its hash. */
static void add_file(void *arg, const char *path, struct slice bytes)
{
    struct files *f = arg;
    unsigned char digest[32];
    if (!slice_ends(slice_of(path), SLICE(".lua")) && !slice_ends(slice_of(path), SLICE(".jsonl")))
        return;
    buf_add_text(f->out, f->comma);
    json_quote(f->out, slice_of(path));
    EVP_Digest(bytes.p, bytes.n, digest, NULL, EVP_sha256(), NULL);
    buf_add_text(f->out, ":\"");
    for (int i = 0; i < 32; i++)
        buf_printf(f->out, "%02x", digest[i]);
    buf_add_text(f->out, "\"");
    f->comma = ",";
}

static void quarantine(struct master *m, struct buf *out)
{
    const char *comma = "";
    buf_add_text(out, "\"quarantine\":{");
    for (const struct quarantined *q = m->quarantine; q != NULL; q = q->next) {
        buf_add_text(out, comma);
        json_quote(out, slice_of(q->plugin));
        buf_printf(out, ":{\"kills\":%u,\"quarantined\":%s}", q->kills,
                   q->active ? "true" : "false");
        comma = ",";
    }
    buf_add_text(out, "}");
}

struct list {
    struct buf *out;
    const char *comma;
    uint64_t now;
};

static void add_target(void *arg, const char *name, enum target_health health, uint64_t until)
{
    struct list *l = arg;
    buf_printf(l->out, "%s{", l->comma);
    member_text(l->out, "target", name);
    if (health != TARGET_HEALTH_UNKNOWN)
        buf_printf(l->out, ",\"healthy\":%s", health == TARGET_HEALTH_UP ? "true" : "false");
    if (until != 0)
        buf_printf(l->out, ",\"out_ms\":%" PRIu64, until - l->now);
    buf_add_text(l->out, "}");
    l->comma = ",";
}

/* Those that are checked, and those that said when to come back. */
static void targets(struct master *m, struct buf *out)
{
    struct list l = { out, "", zone_now() };
    buf_add_text(out, "\"targets\":[");
    target_table_each(zone_targets(m->zone), l.now, add_target, &l);
    buf_add_text(out, "],");
}

/* Where the access log goes, and what became of its lines. */
static void access_log(struct master *m, struct buf *out)
{
    const struct zone_totals *t = zone_totals(m->zone);
    const char *to = plan_text(m->plan, "log.access");
    uint64_t dropped = 0;
    for (unsigned i = 0; i < zone_slots(m->zone); i++)
        dropped += zone_slot(m->zone, i)->access.dropped + zone_slot(m->zone, i)->access.died;
    if (to == NULL) {
        buf_add_text(out, "\"access_log\":null,");
        return;
    }
    buf_add_text(out, "\"access_log\":{");
    member_text(out, "to", to);
    buf_printf(out, ",\"written\":%" PRIu64 ",\"dropped\":%" PRIu64 ",\"failed\":%" PRIu64 "},",
               t->lines_written, dropped, t->lines_failed);
}

static void last_reload(struct master *m, struct buf *out)
{
    if (m->last_reload.at == 0) {
        buf_add_text(out, "\"last_reload\":null");
        return;
    }
    buf_printf(out, "\"last_reload\":{\"at_ms\":%" PRId64 ",\"ok\":%s,", m->last_reload.at,
               m->last_reload.ok ? "true" : "false");
    member_text(out, "outcome", m->last_reload.text);
    buf_add_text(out, "}");
}

void master_status(struct master *m, struct slice plugins, struct buf *out)
{
    const char *why = master_not_ready(m);
    struct files f = { out, "" };
    int64_t now = loop_wall_ms();
    buf_printf(out,
               "{\"version\":\"%s\",\"pid\":%d,\"now_ms\":%" PRId64 ",\"uptime_s\":%" PRId64
               ",\"workers_configured\":%u,\"connections_limit\":%u,\"ready\":%s,",
               TOLLGATE_VERSION, (int)getpid(), now, (now - m->started) / 1000, m->places,
               (unsigned)m->plan->connections, why == NULL ? "true" : "false");
    member_text(out, "problem", why != NULL ? why : "");
    buf_printf(out, ",\"upgrading\":%s,\"generation\":%" PRIu64 ",\"hash\":\"%s\",",
               m->upgrading || m->rolling ? "true" : "false", m->plan->number, m->plan->hash);
    member_text(out, "config", m->config);
    buf_add_text(out, ",");
    last_reload(m, out);
    buf_add_text(out, ",");
    master_routing_status(m, out);
    buf_add_text(out, ",");
    quarantine(m, out);
    buf_add_text(out, ",");
    access_log(m, out);
    targets(m, out);
    workers(m, out);
    buf_add_text(out, ",\"plugins\":");
    buf_add_slice(out, plugins.n > 0 ? plugins : SLICE("null"));
    buf_add_text(out, ",\"files\":{");
    snapshot_each_file(m->plan->snapshot, add_file, &f);
    buf_add_text(out, "}}");
}
