/* See worker_internal.h: what is one for all workers of the replica: figures of plugins, who leads,
 * the routing version. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "api.h"
#include "log.h"
#include "worker_internal.h"

static bool leads(void *arg)
{
    struct worker *w = arg;
    return zone_leads(w->zone, w->slot_number);
}

/* The policy goes along as a file in memory. */
static void follow(void *arg, const struct routing_report *r)
{
    struct worker *w = arg;
    int fd = r->policy.p != NULL ? memfd_create("tollgate policy", MFD_CLOEXEC) : -1;
    bool fine = r->policy.p == NULL ||
                (fd >= 0 && write(fd, r->policy.p, r->policy.n) == (ssize_t)r->policy.n);
    if (!fine)
        log_error("no memory for a routing policy: %s", strerror(errno));
    else if (r->known)
        control_send(w->control, fd, "follow %" PRIu64 " %" PRIu64, r->version, r->stale_ms);
    else
        control_send(w->control, -1, "follow - %" PRIu64, r->stale_ms);
    if (fd >= 0)
        close(fd);
}

/* Figures that were counted up to here are in the answer. */
static void ask_metrics(void *arg, uint64_t id)
{
    struct worker *w = arg;
    worker_show(w);
    control_send(w->control, -1, "metrics %" PRIu64, id);
}

void worker_metrics(struct worker *w, uint64_t id, int fd)
{
    struct stat st;
    struct slice text = SLICE("");
    void *at = MAP_FAILED;
    if (fstat(fd, &st) == 0 && st.st_size > 0)
        at = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (at != MAP_FAILED)
        text = (struct slice){ at, (size_t)st.st_size };
    api_metrics_answer(&w->gw.sv, id, text);
    if (at != MAP_FAILED)
        munmap(at, text.n);
    close(fd);
}

void worker_join(struct worker *w)
{
    w->gw.sv.metrics = metrics_new_in(zone_metrics(w->zone, w->slot_number));
    w->gw.sv.figures = figures_new(w->gw.sv.metrics);
    w->gw.sv.tickets = zone_tickets(w->zone);
    w->gw.sv.replica = zone_replica(w->zone);
    w->gw.sv.leads = leads;
    w->gw.sv.leads_arg = w;
    w->gw.sv.follow = follow;
    w->gw.sv.follow_arg = w;
    w->gw.sv.ask_metrics = ask_metrics;
    w->gw.sv.ask_metrics_arg = w;
    w->gw.sv.routing_version = zone_routing(w->zone);
    w->gw.sv.target_table = zone_targets(w->zone);
}
