/* See admin.h. */
#include "admin.h"

#include <inttypes.h>
#include <string.h>

/* `allow` is the value of the field of that name; NULL: none. */
static void answer_with(struct exchange *x, int status, const char *type, struct slice body, const char *allow)
{
    x->quiet = true;
    x->res = (struct response){ .status = status, .minor = 1 };
    headers_init(&x->res.headers, &x->arena);
    headers_add(&x->res.headers, SLICE("content-type"), slice_of(type));
    headers_add(&x->res.headers, SLICE("cache-control"), SLICE("no-store"));
    if (allow != NULL)
        headers_add(&x->res.headers, SLICE("allow"), slice_of(allow));
    x->source = SOURCE_BYTES;
    x->answer = arena_dup(&x->arena, body);
    exchange_answer(x);
}

static void answer(struct exchange *x, int status, const char *type, struct slice body)
{
    answer_with(x, status, type, body, NULL);
}

static bool host_allowed(struct exchange *x)
{
    struct slice h = x->req.authority;
    struct address a;
    char name[64];
    if (h.n > 0 && h.p[0] == '[') {
        const char *end = memchr(h.p, ']', h.n);
        h = end != NULL ? (struct slice){ h.p + 1, (size_t)(end - h.p) - 1 } : h;
    } else {
        const char *colon = h.n > 0 ? memchr(h.p, ':', h.n) : NULL;
        h.n = colon != NULL ? (size_t)(colon - h.p) : h.n;
    }
    if (h.n == 0 || slice_ieq(h, SLICE("localhost")))
        return true;
    if (h.n >= sizeof name)
        return false;
    memcpy(name, h.p, h.n);
    name[h.n] = '\0';
    return address_of_ip(name, 0, &a) == 0;
}

static void ready(struct exchange *x)
{
    const struct services *sv = x->sv;
    const char *why = NULL;
    if (sv->draining)
        why = "draining";
    else if (rds_state(sv->rds) != RDS_READY)
        why = rds_problem(sv->rds);
    if (why == NULL) {
        answer(x, 200, "text/plain", SLICE("ready\n"));
        return;
    }
    answer(x, 503, "text/plain", arena_printf(&x->arena, "not ready: %s%s\n", sv->draining ? "" : "redis: ", why));
}

static void metric(struct buf *out, const char *name, const char *help, uint64_t v)
{
    buf_printf(out, "# HELP tollgate_%s %s\n# TYPE tollgate_%s counter\ntollgate_%s %" PRIu64 "\n", name, help, name, name, v);
}

static void metrics(struct exchange *x)
{
    const struct quota_stats *q = quota_stats(x->sv->quota);
    struct buf out;
    buf_init(&out);
    counters_write(&x->sv->counters, &out);
    metric(&out, "quota_admitted_total", "Requests admitted in Redis", q->admitted);
    metric(&out, "quota_refused_rate_total", "Requests refused by the bucket", q->refused_rate);
    metric(&out, "quota_refused_concurrency_total", "Requests refused by concurrency", q->refused_concurrency);
    metric(&out, "quota_refused_budget_total", "Requests refused by the budget", q->refused_budget);
    metric(&out, "quota_unavailable_total", "Admissions that Redis did not decide in time", q->unavailable);
    metric(&out, "quota_settled_total", "Settlements", q->settled);
    metric(&out, "quota_voided_total", "Admissions of unknown outcome that were taken back", q->voided);
    metric(&out, "quota_overspent_total", "Settlements above their reservation", q->overspent);
    metric(&out, "quota_lapsed_total", "Reservations whose lease was gone at renewal", q->lapsed);
    metric(&out, "quota_healed_total", "Slots of dead gateways that were freed", q->healed);
    metric(&out, "quota_lost_total", "Settlements that had to be given up", q->lost);
    metrics_write(x->sv->metrics, &out);
    answer(x, 200, "text/plain; version=0.0.4", buf_slice(&out));
    buf_deinit(&out);
}

void admin_begin(struct exchange *x)
{
    static const struct { const char *path; void (*serve)(struct exchange *x); } pages[] = {
        { "/readyz", ready }, { "/metrics", metrics }
    };
    if (!host_allowed(x)) {
        answer(x, 421, "text/plain", SLICE("the admin listener answers only to an IP address or localhost\n"));
        return;
    }
    if (!slice_eq(x->req.method, SLICE("GET")) && !slice_eq(x->req.method, SLICE("HEAD"))) {
        answer_with(x, 405, "text/plain", SLICE("the admin listener is read-only: GET or HEAD\n"), "GET, HEAD");
        return;
    }
    if (slice_eq(x->req.path, SLICE("/healthz"))) {
        answer(x, 200, "text/plain", SLICE("ok\n"));
        return;
    }
    for (size_t i = 0; i < sizeof pages / sizeof *pages; i++) {
        if (slice_eq(x->req.path, slice_of(pages[i].path))) {
            pages[i].serve(x);
            return;
        }
    }
    answer(x, 404, "text/plain", SLICE("not found: there are /healthz, /readyz and /metrics\n"));
}
