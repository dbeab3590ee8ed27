/* See log_writer.h. */
#include "log_writer.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "container.h"
#include "control.h"
#include "log.h"
#include "log_output.h"
#include "mem.h"
#include "zone.h"

enum {
    PIECE = 65536,
    LINES_MAX = 131072, /* bytes that wait for a reader; beyond them the pipes wait */
    LINE_LONGEST = 1 << 20,
    RETRY_MS = 20,
    LAST_MS = 1000
};

enum mode {
    GOING,
    ENDING, /* no worker lives: read what is there */
    LEAVING /* another log writer follows: read to the ends of lines that were begun */
};

/* The end of a worker's pipe. */
struct inlet {
    uv_poll_t poll;
    struct inlet *next;
    struct writer *w;
    int fd;
    bool polled, skipping; /* skipping: up to the line's end, whose beginning a writer before had */
    struct access_counts *counts;
    struct buf line; /* the beginning of one */
};

struct writer {
    struct loop loop;
    struct control *control;
    struct zone *zone;
    struct zone_totals *totals;
    struct log_output out;
    struct buf lines;
    struct inlet *inlets;
    struct timer retry, last;
    unsigned grace_s;
    enum mode mode;
    bool dry; /* ENDING: all that was written has been read */
    bool orphaned, over;
    uint64_t log_dropped;
};

static void flush(struct writer *w);
static bool read_all(struct writer *w);
static void finish_line(struct inlet *in);

/* --- the end --- */

static void on_inlet_closed(uv_handle_t *h)
{
    mem_free(CONTAINER(h, struct inlet, poll));
}

static void inlet_free(struct inlet *in)
{
    struct inlet **at = &in->w->inlets;
    while (*at != in)
        at = &(*at)->next;
    *at = in->next;
    uv_close((uv_handle_t *)&in->poll, on_inlet_closed);
    close(in->fd);
    buf_deinit(&in->line);
}

static void end(struct writer *w)
{
    if (w->over)
        return;
    w->over = true;
    if (w->lines.n > 0)
        log_warn("access log: its reader was too slow; lines were lost at the end");
    while (w->inlets != NULL)
        inlet_free(w->inlets);
    timer_deinit(&w->loop, &w->retry);
    timer_deinit(&w->loop, &w->last);
    control_free(w->control);
    log_output_deinit(&w->out);
    buf_deinit(&w->lines);
}

/* At the end, and behind the master's death, once all has been read and written. */
static void end_where_done(struct writer *w)
{
    bool read = w->mode == ENDING ? w->dry : w->orphaned && w->inlets == NULL;
    if (w->mode == LEAVING) {
        read = true;
        for (const struct inlet *in = w->inlets; in != NULL; in = in->next)
            read = read && in->line.n == 0;
    }
    if (read && w->lines.n == 0)
        end(w);
}

static void on_last(struct timer *t)
{
    end(CONTAINER(t, struct writer, last));
}

/* --- lines --- */

/* What stands unfinished is of a worker that died; so are lines that were made and never came. */
static void started(struct inlet *in)
{
    struct access_counts *c = in->counts;
    buf_clear(&in->line);
    in->skipping = false;
    if (c->before > c->received)
        c->died = c->before - c->received;
}

static void take_line(struct inlet *in, const char *p, size_t n)
{
    struct writer *w = in->w;
    in->counts->received++;
    if (in->skipping) {
        w->totals->lines_failed++;
        in->skipping = false;
        return;
    }
    buf_add_slice(&w->lines, buf_slice(&in->line));
    buf_add(&w->lines, p, n);
    buf_clear(&in->line);
}

static void take(struct inlet *in, const char *p, size_t n)
{
    while (n > 0) {
        const char *end = memchr(p, '\n', n);
        const char *start = memchr(p, ACCESS_LOG_START, end != NULL ? (size_t)(end - p) : n);
        if (start != NULL) {
            started(in);
            n -= (size_t)(start + 1 - p);
            p = start + 1;
        } else if (end != NULL) {
            take_line(in, p, (size_t)(end + 1 - p));
            n -= (size_t)(end + 1 - p);
            p = end + 1;
        } else {
            if (!in->skipping && in->line.n + n <= LINE_LONGEST)
                buf_add(&in->line, p, n);
            break;
        }
    }
    in->counts->partial = in->line.n > 0 || in->skipping;
}

static void on_readable(uv_poll_t *h, int status, int events);

static void poll_inlet(struct inlet *in, bool wanted)
{
    if (in->polled == wanted)
        return;
    in->polled = wanted;
    if (wanted)
        uv_poll_start(&in->poll, UV_READABLE, on_readable);
    else
        uv_poll_stop(&in->poll);
}

enum got { GOT_SOME, GOT_NOTHING, GOT_END }; /* GOT_END: the inlet is gone */

static enum got read_inlet(struct inlet *in, size_t most)
{
    static char piece[PIECE];
    ssize_t n;
    do
        n = read(in->fd, piece, most);
    while (n < 0 && errno == EINTR);
    if (n > 0) {
        take(in, piece, (size_t)n);
        return GOT_SOME;
    }
    if (n < 0)
        return GOT_NOTHING;
    inlet_free(in);
    return GOT_END;
}

static void on_readable(uv_poll_t *h, int status, int events)
{
    struct inlet *in = CONTAINER(h, struct inlet, poll);
    struct writer *w = in->w;
    (void)status, (void)events;
    if (w->mode == LEAVING)
        finish_line(in);
    else
        read_inlet(in, PIECE);
    flush(w);
}

/* Where the reader takes lines: false where there may be more to read, or to write. */
static bool read_all(struct writer *w)
{
    enum got got = GOT_NOTHING;
    for (struct inlet *in = w->inlets, *next; in != NULL; in = next) {
        next = in->next;
        while (w->lines.n < LINES_MAX && (got = read_inlet(in, PIECE)) == GOT_SOME)
            ;
    }
    w->dry = w->lines.n < LINES_MAX;
    return log_output_write(&w->out, &w->lines) && w->dry;
}

/* Byte by byte, so that no other line is begun. */
static void finish_line(struct inlet *in)
{
    enum got got = GOT_SOME;
    while (got == GOT_SOME && in->line.n > 0)
        got = read_inlet(in, 1);
    if (got != GOT_END)
        poll_inlet(in, in->line.n > 0);
}

/* --- writing --- */

static void flush(struct writer *w)
{
    size_t before = w->lines.n;
    bool all = log_output_write(&w->out, &w->lines);
    if (w->mode == ENDING && all)
        all = read_all(w);
    if (w->mode != GOING && w->lines.n < before) /* whoever reads is slow, but reads */
        timer_set(&w->loop, &w->last, LAST_MS);
    if (!all && w->retry.at == 0)
        timer_set(&w->loop, &w->retry, RETRY_MS);
    for (struct inlet *in = w->inlets; in != NULL && w->mode == GOING; in = in->next)
        poll_inlet(in, w->lines.n < LINES_MAX);
    end_where_done(w);
}

static void on_retry(struct timer *t)
{
    flush(CONTAINER(t, struct writer, retry));
}

/* --- what the master says --- */

/* What a writer before took and did not get rid of. */
static void count_lost(struct writer *w)
{
    uint64_t received = 0, gone = w->totals->lines_written + w->totals->lines_failed;
    for (unsigned i = 0; i < zone_slots(w->zone); i++)
        received += zone_slot(w->zone, i)->access.received;
    if (received > gone)
        w->totals->lines_failed += received - gone;
}

static void add_inlet(struct writer *w, unsigned slot, int fd)
{
    struct inlet *in = mem_zalloc(sizeof *in);
    in->w = w;
    in->fd = fd;
    in->counts = &zone_slot(w->zone, slot)->access;
    in->skipping = in->counts->partial != 0;
    buf_init(&in->line);
    fcntl(fd, F_SETFL, O_NONBLOCK);
    uv_poll_init(&w->loop.uv, &in->poll, fd);
    in->next = w->inlets;
    w->inlets = in;
    poll_inlet(in, true);
}

/* The rest of a line that an output has in part belongs to no other. */
static void drop_rest(struct writer *w)
{
    log_output_write(&w->out, &w->lines);
    const char *end = w->out.inside ? memchr(w->lines.p, '\n', w->lines.n) : NULL;
    if (end == NULL)
        return;
    buf_consume(&w->lines, (size_t)(end + 1 - w->lines.p));
    w->totals->lines_failed++;
}

static void go(struct writer *w, enum mode mode)
{
    w->mode = mode;
    timer_set(&w->loop, &w->last, LAST_MS);
    for (struct inlet *in = w->inlets, *next; in != NULL; in = next) {
        next = in->next;
        poll_inlet(in, false);
        if (mode == LEAVING)
            finish_line(in);
    }
    flush(w);
}

static void on_message(void *arg, struct slice text, int fd)
{
    struct writer *w = arg;
    char line[PATH_MAX + 16];
    unsigned slot;
    snprintf(line, sizeof line, "%.*s", (int)text.n, text.p);
    if (sscanf(line, "pipe %u", &slot) == 1 && fd >= 0 && slot < zone_slots(w->zone)) {
        add_inlet(w, slot, fd);
        return;
    }
    if (fd >= 0)
        close(fd);
    if (strncmp(line, "to ", 3) == 0) {
        drop_rest(w);
        log_output_set(&w->out, line + 3);
        flush(w);
    } else if (strcmp(line, "reopen") == 0) {
        drop_rest(w);
        log_output_reopen(&w->out);
    } else if (strcmp(line, "end") == 0) {
        go(w, ENDING);
    } else if (strcmp(line, "leave") == 0) {
        go(w, LEAVING);
    }
}

/* The master is gone: the workers end soon, and with them the pipes. */
static void on_control_end(void *arg)
{
    struct writer *w = arg;
    w->orphaned = true;
    alarm(w->grace_s);
    end_where_done(w);
}

static void ignore_signals(void)
{
    static const int all[] = { SIGPIPE, SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2 };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        signal(all[i], SIG_IGN); /* the master says what is to be done */
}

int log_writer_main(int argc, char **argv)
{
    static const struct control_events events = { on_message, on_control_end };
    struct writer *w = mem_zalloc(sizeof *w);
    w->zone = argc == 3 ? zone_map(atoi(argv[1])) : NULL;
    if (w->zone == NULL) {
        log_error("log-writer: this command is for the gateway's own use");
        return 2;
    }
    fcntl(atoi(argv[1]), F_SETFD, FD_CLOEXEC);
    w->grace_s = (unsigned)atoi(argv[2]);
    w->totals = zone_totals(w->zone);
    w->retry.cb = on_retry;
    w->last.cb = on_last;
    ignore_signals();
    log_never_wait(&w->log_dropped);
    if (loop_init(&w->loop) != 0)
        return 1;
    log_output_init(&w->out, &w->totals->lines_written, &w->totals->lines_failed);
    count_lost(w);
    w->control = control_new(&w->loop, atoi(argv[0]), &events, w);
    loop_run(&w->loop);
    int left = loop_deinit(&w->loop);
    zone_free(w->zone);
    mem_free(w);
    return left > 0 ? 70 : 0;
}
