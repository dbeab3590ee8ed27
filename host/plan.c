/* See plan.h. */
#include "plan.h"

#include <fcntl.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "log.h"
#include "mem.h"
#include "zone.h"

static uint64_t number(const struct plan *p, const char *name)
{
    const char *text = plan_text(p, name);
    return text != NULL ? strtoull(text, NULL, 10) : 0;
}

struct plan *plan_new(int fd, uint64_t n)
{
    fcntl(fd, F_ADD_SEALS,
          F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK); /* nobody changes it any more */
    struct snapshot *s = snapshot_read_fd(fd);
    if (s == NULL) {
        close(fd);
        return NULL;
    }
    struct plan *p = mem_zalloc(sizeof *p);
    p->fd = fd;
    p->number = n;
    p->snapshot = s;
    snapshot_hash(s, p->hash);
    p->connections = (uint32_t)number(p, "limits.connections");
    p->drain_ms = number(p, "timeouts.drain");
    p->watchdog_ms = number(p, "watchdog");
    p->check_ms = number(p, "reload.check");
    p->ticket_keys_ms = number(p, "timeouts.ticket_keys");
    p->memory = number(p, "reload.memory");
    p->quarantine_after = (uint32_t)number(p, "quarantine.after");
    p->watch = number(p, "reload.watch") != 0;
    return p;
}

void plan_free(struct plan *p)
{
    close(p->fd);
    snapshot_free(p->snapshot);
    mem_free(p);
}

const char *plan_text(const struct plan *p, const char *name)
{
    return snapshot_note(p->snapshot, name).p;
}

void plan_warn(const struct plan *p)
{
    const char *at = plan_text(p, "warnings"), *end;
    for (; at != NULL && (end = strchr(at, '\n')) != NULL; at = end + 1)
        log_warn("%.*s", (int)(end - at), at);
}

static const char *const restart_keys[] = { "listen",      "admin",   "workers",
                                            "data_dir",    "run_dir", "redis",
                                            "shared.size", "user",    "core_dumps" };
enum { RESTART_KEYS = sizeof restart_keys / sizeof *restart_keys };

void plan_restart_lines(struct snapshot *s, struct buf *out)
{
    for (int i = 0; i < RESTART_KEYS; i++) {
        struct slice v = snapshot_note(s, restart_keys[i]);
        unsigned char digest[32];
        EVP_Digest(v.p != NULL ? v.p : "", v.n, digest, NULL, EVP_sha256(), NULL);
        buf_printf(out, "%s ", restart_keys[i]);
        for (int k = 0; k < 16; k++)
            buf_printf(out, "%02x", digest[k]);
        buf_add_text(out, "\n");
    }
}

void plan_restart_keys(const struct plan *a, const struct plan *b, struct buf *out)
{
    for (int i = 0; i < RESTART_KEYS; i++) {
        struct slice x = snapshot_note(a->snapshot, restart_keys[i]),
                     y = snapshot_note(b->snapshot, restart_keys[i]);
        if ((x.p != NULL) != (y.p != NULL) || !slice_eq(x, y))
            buf_printf(out, "%s%s", out->n > 0 ? ", " : "", restart_keys[i]);
    }
}

static const char *phase_name(unsigned phase)
{
    static const char *const request[] = { "access", "target", "attempt", "response",
                                           "body",   "finish", "log" };
    static const char *const other[] = { "timer", "init", "stop", "load", "command" };
    if (phase < sizeof request / sizeof *request)
        return request[phase];
    return phase >= MARK_TIMER && phase <= MARK_COMMAND ? other[phase - MARK_TIMER] : "?";
}

const char *plan_mark(const struct plan *p, uint64_t mark, char *out, size_t size)
{
    char name[64];
    const char *phase = phase_name(zone_mark_phase(mark));
    unsigned route = zone_mark_route(mark);
    if (route == ZONE_NO_ROUTE || p == NULL) {
        snprintf(out, size, "no plugin's phase (%s)", phase);
        return NULL;
    }
    snprintf(name, sizeof name, "hook.%u.%u", route, zone_mark_hook(mark));
    const char *plugin = plan_text(p, name);
    snprintf(name, sizeof name, "route.%u", route);
    const char *route_name = plan_text(p, name);
    snprintf(out, size, "plugin %s, phase %s, route %s", plugin != NULL ? plugin : "?", phase,
             route_name != NULL ? route_name : "?");
    return plugin;
}
