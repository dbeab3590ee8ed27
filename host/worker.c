/* See worker.h: what the master says, what the master sees, and the end. worker_accept.c says on
 * which sockets connections are accepted, worker_signal.c what signals do, worker_replica.c what is
 * one for all workers. */
#include "worker.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "container.h"
#include "descriptors.h"
#include "log.h"
#include "mem.h"
#include "privileges.h"
#include "worker_internal.h"

enum { BEAT_MS = 50, ROOM_MS = 20, ORPHAN_GRACE_S = 8 };

/* --- the slot --- */

static void show_redis(struct worker *w)
{
    struct rds *r = w->gw.sv.rds;
    bool usable = r != NULL && rds_state(r) == RDS_READY;
    if (!usable)
        snprintf(w->slot->redis_problem, sizeof w->slot->redis_problem, "%s",
                 r != NULL ? rds_problem(r) : "not started");
    w->slot->redis_usable = usable;
}

void worker_show(struct worker *w)
{
    struct zone_slot *s = w->slot;
    struct gateway *gw = &w->gw;
    s->beat = zone_now();
    s->connections = gw->server != NULL ? server_connections(gw->server) : 0;
    s->exchanges = gw->sv.exchanges;
    s->generations = gw->sv.ngenerations;
    s->buffers = buf_bytes();
    s->buffered = gw->sv.buffered;
    show_redis(w);
}

static void on_turn(uv_prepare_t *h)
{
    struct worker *w = h->data;
    w->turns++;
    worker_show(w);
}

static void on_beat(struct timer *t)
{
    struct worker *w = CONTAINER(t, struct worker, beat);
    timer_set(&w->loop, t, BEAT_MS);
    if (w->gw.current != NULL)
        w->slot->lua_bytes = (uint64_t)lua_gc(w->gw.current->L, LUA_GCCOUNT, 0) * 1024;
    worker_accept(w);
    log_flush();
}

/* --- the end --- */

static void on_gateway_closing(struct gateway *gw)
{
    worker_show(CONTAINER(gw, struct worker, gw));
}

static void on_gateway_end(struct gateway *gw)
{
    struct worker *w = CONTAINER(gw, struct worker, gw);
    uv_prepare_stop(&w->turn);
    control_free(w->control);
    uv_close((uv_handle_t *)&w->turn, NULL);
    timer_deinit(&w->loop, &w->beat);
    timer_deinit(&w->loop, &w->room);
}

static void drain(struct worker *w, uint64_t ms)
{
    w->serving = false;
    w->slot->state = ZONE_DRAINING;
    timer_stop(&w->room);
    if (w->waiting_fd >= 0)
        close(w->waiting_fd);
    w->waiting_fd = -1;
    gateway_drain(&w->gw, ms);
}

static void on_refused(struct gateway *gw)
{
    struct worker *w = CONTAINER(gw, struct worker, gw);
    w->code = WORKER_REFUSED;
    drain(w, w->drain_ms);
}

/* The master is gone. SIGALRM ends what does not end by itself. */
static void on_control_end(void *arg)
{
    struct worker *w = arg;
    w->orphaned = true;
    alarm((unsigned)(w->drain_ms / 1000) + ORPHAN_GRACE_S);
    if (!w->gw.ending)
        log_warn("worker %u: the master is gone", w->place);
    for (unsigned i = 0; i < w->naddresses * w->places; i++)
        shutdown(w->fds[i],
                 SHUT_RDWR); /* for all who hold it: the next gateway may listen at once */
    drain(w, w->drain_ms);
}

/* --- what the master says --- */

static void load(struct worker *w, int fd, uint64_t number)
{
    struct buf faults;
    struct snapshot *s = snapshot_read_fd(fd);
    close(fd);
    buf_init(&faults);
    if (s == NULL) {
        control_send(w->control, -1, "failed %" PRIu64 "\nthe snapshot is damaged\n", number);
    } else if (gateway_load(&w->gw, s, number, &faults) != 0) {
        control_send(w->control, -1, "failed %" PRIu64 "\n%.*s", number, (int)faults.n, faults.p);
    } else {
        w->drain_ms = w->gw.pending->settings.timeouts.drain;
        control_send(w->control, -1, "loaded %" PRIu64, number);
    }
    buf_deinit(&faults);
    if (w->gw.current == NULL &&
        w->gw.pending == NULL) { /* it has nothing to serve by; another one may fare better */
        w->code = 1;
        drain(w, w->drain_ms);
    }
}

static void load_when_room(struct worker *w)
{
    if (!gateway_has_room(&w->gw)) {
        timer_set(&w->loop, &w->room, ROOM_MS);
        return;
    }
    int fd = w->waiting_fd;
    w->waiting_fd = -1;
    load(w, fd, w->waiting_number);
}

static void on_room(struct timer *t)
{
    load_when_room(CONTAINER(t, struct worker, room));
}

static void on_message(void *arg, struct slice text, int fd)
{
    struct worker *w = arg;
    char verb[16] = "", line[512];
    uint64_t number = 0;
    snprintf(line, sizeof line, "%.*s", (int)text.n, text.p);
    sscanf(line, "%15s %" SCNu64, verb, &number);
    bool pending = w->gw.pending != NULL && w->gw.pending->number == number;
    if (strcmp(verb, "metrics") == 0 && fd >= 0) {
        worker_metrics(w, number, fd);
    } else if (w->gw.ending && strcmp(verb, "abort") != 0) {
        if (fd >= 0)
            close(fd);
    } else if (strcmp(verb, "load") == 0 && fd >= 0) {
        w->waiting_fd = fd;
        w->waiting_number = number;
        load_when_room(w);
    } else if (strcmp(verb, "switch") == 0 && pending) {
        gateway_switch(&w->gw);
        w->slot->generation = number;
        worker_serve(w);
        control_send(w->control, -1, "serving %" PRIu64, number);
    } else if (strcmp(verb, "drop") == 0 && pending) {
        gateway_drop(&w->gw);
    } else if (strcmp(verb, "drop") == 0 && w->waiting_fd >= 0) {
        timer_stop(&w->room);
        close(w->waiting_fd);
        w->waiting_fd = -1;
    } else if (strcmp(verb, "command") == 0) {
        const char *rest = memchr(text.p, '\n', text.n);
        if (rest != NULL)
            worker_command(w, number,
                           (struct slice){ rest + 1, text.n - (size_t)(rest + 1 - text.p) });
    } else if (strcmp(verb, "drain") == 0) {
        drain(w, number);
    } else if (strcmp(verb, "abort") == 0) {
        gateway_abort(&w->gw);
    } else if (strcmp(verb, "skip") == 0 || strcmp(verb, "fail") == 0) {
        gateway_quarantine(&w->gw, line + 5, verb[0] == 'f');
    } else if (strcmp(verb, "lift") == 0) {
        gateway_quarantine_lift(&w->gw);
    }
}

/* --- the start --- */

static int start(struct worker *w, int control_fd, int log_fd)
{
    static const struct control_events events = { on_message, on_control_end };
    if (loop_init(&w->loop) != 0 || gateway_init(&w->gw, &w->loop) != 0)
        return -1;
    w->gw.sv.counters = &w->slot->counters;
    upstream_count(w->gw.sv.upstream, w->gw.sv.counters);
    w->gw.sv.quota_at = &w->slot->quota;
    w->gw.sv.watch.mark = &w->slot->mark;
    if (log_fd >= 0)
        fcntl(log_fd, F_SETFD, FD_CLOEXEC);
    w->gw.sv.access_log = access_log_new(&w->loop, log_fd, &w->slot->access);
    worker_join(w);
    w->gw.on_closing = on_gateway_closing;
    w->gw.on_end = on_gateway_end;
    w->gw.on_refused = on_refused;
    w->control = control_new(&w->loop, control_fd, &events, w);
    uv_prepare_init(&w->loop.uv, &w->turn);
    w->turn.data = w;
    uv_prepare_start(&w->turn, on_turn);
    uv_unref((uv_handle_t *)&w->turn);
    w->room.cb = on_room;
    w->beat.cb = on_beat;
    on_beat(&w->beat);
    return 0;
}

static struct worker *worker_new(int argc, char **argv)
{
    struct worker *w = mem_zalloc(sizeof *w);
    w->gw.config = argv[0];
    w->place = (unsigned)atoi(argv[1]);
    w->places = (unsigned)atoi(argv[2]);
    w->zone = zone_map(atoi(argv[5]));
    w->gw.redis_socket = strcmp(argv[6], "-") != 0 ? argv[6] : NULL;
    w->limit = (uint32_t)strtoul(argv[7], NULL, 10);
    w->naddresses = (unsigned)(argc - 10) / w->places;
    w->fds = mem_zalloc((w->naddresses * w->places + 1) * sizeof *w->fds);
    for (unsigned i = 0; i < w->naddresses * w->places; i++) {
        w->fds[i] = atoi(argv[10 + i]);
        fcntl(w->fds[i], F_SETFD, FD_CLOEXEC);
    }
    w->waiting_fd = -1;
    fcntl(atoi(argv[5]), F_SETFD, FD_CLOEXEC);
    fcntl(atoi(argv[8]), F_SETFD, FD_CLOEXEC);
    if (shared_map(&w->gw.sv.shared, atoi(argv[8])) != 0)
        w->gw.sv.shared = NULL;
    return w;
}

static void show_start(struct worker *w)
{
    w->slot->mark = 0;
    w->slot->generation = w->slot->generations = w->slot->connections = w->slot->exchanges = 0;
    w->slot->place = w->place;
    w->slot->started = (uint64_t)loop_wall_ms();
    w->slot->beat = zone_now();
    w->slot->state = ZONE_STARTING;
    w->slot->pid = (uint64_t)getpid();
}

int worker_main(int argc, char **argv)
{
    struct worker *w = argc >= 10 && atoi(argv[2]) > 0 ? worker_new(argc, argv) : NULL;
    if (w == NULL || w->zone == NULL || w->gw.sv.shared == NULL) {
        log_error("worker: this command is for the gateway's own use");
        return 2;
    }
    privileges_hide_too();
    descriptors_raise();
    w->slot_number = (unsigned)atoi(argv[3]);
    w->slot = zone_slot(w->zone, w->slot_number);
    show_start(w);
    worker_signals(w);
    log_never_wait(&w->slot->log_dropped);
    if (start(w, atoi(argv[4]), atoi(argv[9])) != 0)
        return 1;
    loop_run(&w->loop);
    int left = loop_deinit(&w->loop);
    int code = left > 0 || gateway_deinit(&w->gw) > 0 ? WORKER_LEAK : w->code;
    shared_free(w->gw.sv.shared);
    zone_free(w->zone);
    mem_free(w->listeners);
    mem_free(w->fds);
    worker_signals_end();
    mem_free(w);
    return code;
}
