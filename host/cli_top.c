/* tollgate top: what the gateway does right now, out of its metrics, asked for over its Unix
 * socket. On a terminal it is drawn anew each interval; anywhere else tables follow one another.
 *
 * A gateway that ends, hangs or starts anew meanwhile is told of, and waited for. */
#include <errno.h>
#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <uv.h>

#include "cli.h"
#include "cli_args.h"
#include "cli_top_screen.h"
#include "control_client.h"
#include "terminal.h"
#include "top_json.h"
#include "top_view.h"

enum { SLOW_MS = 1500, KEYS = 64, READ = 65536 };

struct program {
    const struct cli_args *args;
    double interval; /* seconds */
    struct metrics_page pages[2];
    int newest;  /* in pages */
    bool second; /* both pages are there */
    double read_at;
    bool shown; /* top holds something */
    struct top top;
    struct top_view view;
    struct top_look look;
    struct top_keys keys;
    int fd; /* what was asked is read from it; -1: nothing is asked */
    struct buf answer;
    double asked_at, due;
    char note[128];
};

static double monotonic(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static double wall(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* --- pages --- */

static int take_page(struct program *p, struct buf *text)
{
    uint32_t line;
    int next = !p->newest;
    double now = monotonic();
    if (metrics_page_read(&p->pages[next], text, &line) != 0 || p->pages[next].n == 0) {
        p->second = false; /* that page is gone */
        return UV_EINVAL;
    }
    p->second = p->pages[p->newest].n > 0;
    p->newest = next;
    if (p->shown)
        top_deinit(&p->top);
    top_read(&p->top, &p->pages[next], p->second ? &p->pages[!next] : NULL, now - p->read_at);
    p->shown = true;
    p->read_at = now;
    return 0;
}

/* Asks and waits. 0, or 1 with why said. */
static int ask(struct program *p)
{
    struct buf answer;
    buf_init(&answer);
    int code = control_ask(p->args->config, "metrics", &answer);
    if (code != 0)
        cli_faults(p->args, buf_slice(&answer));
    else if (take_page(p, &answer) != 0)
        code = cli_failed(p->args, "the gateway's metrics cannot be read");
    buf_deinit(&answer);
    return code;
}

static void wait_interval(double seconds)
{
    struct timespec left = { (time_t)seconds, (long)((seconds - floor(seconds)) * 1e9) };
    while (nanosleep(&left, &left) != 0 && errno == EINTR)
        ;
}

static void look(struct program *p)
{
    struct terminal t;
    terminal_look(&t, STDOUT_FILENO, p->args->value[CLI_COLOR]);
    p->look = (struct top_look){ (int)t.width, (int)t.height, t.color, t.utf8 };
}

/* --- without a screen --- */

static int print(struct program *p)
{
    struct buf out;
    buf_init(&out);
    if (p->args->json)
        top_json(&out, &p->top);
    else
        top_view_plain(&out, &p->look, &p->view, &p->top, wall());
    bool ok = fwrite(out.p, 1, out.n, stdout) == out.n && fflush(stdout) == 0;
    buf_deinit(&out);
    return ok ? 0 : 1;
}

static int run_plain(struct program *p, bool once)
{
    int code = 0;
    for (bool more = true; more && code == 0; more = !once) {
        wait_interval(p->interval);
        code = ask(p);
        if (code == 0 && p->top.restarted)
            p->view.note = "the gateway has been started anew: no rates yet";
        else
            p->view.note = NULL;
        if (code == 0)
            code = print(p);
        if (code == 0 && !once)
            printf("\n");
    }
    return code;
}

/* --- on a screen --- */

static void note(struct program *p, const char *format, double seconds)
{
    snprintf(p->note, sizeof p->note, format, seconds);
    p->view.note = p->note;
}

static bool draw(struct program *p)
{
    struct buf out;
    buf_init(&out);
    top_view_frame(&out, &p->look, &p->view, p->shown ? &p->top : NULL, wall());
    bool there = screen_draw(buf_slice(&out));
    buf_deinit(&out);
    return there;
}

/* The time has come: asks, unless it still waits for an answer. True where there is something to
 * draw. */
static bool tick(struct program *p, double now)
{
    p->due = now + p->interval;
    if (p->fd >= 0 && (now - p->asked_at) * 1000 < SLOW_MS)
        return false;
    if (p->fd >= 0) {
        note(p, "the gateway has not answered for %.0f s", now - p->asked_at);
        return true;
    }
    p->fd = control_begin(p->args->config, "metrics");
    p->asked_at = now;
    buf_clear(&p->answer);
    if (p->fd < 0)
        note(p, "no gateway answers; these figures are %.0f s old", now - p->read_at);
    return p->fd < 0;
}

/* True once the answer has come, or has failed to. */
static bool read_answer(struct program *p)
{
    ssize_t n = read(p->fd, buf_reserve(&p->answer, READ), READ);
    if (n > 0)
        p->answer.n += (size_t)n;
    if (n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR)))
        return false;
    close(p->fd);
    p->fd = -1;
    p->view.note = NULL;
    if (n < 0 || control_verdict(&p->answer) != 0 || take_page(p, &p->answer) != 0)
        note(p, "the gateway ended; these figures are %.0f s old", monotonic() - p->read_at);
    else if (p->top.restarted)
        note(p, "the gateway has been started anew: no rates yet", 0);
    return true;
}

/* False: it is to end. */
static bool read_keys(struct program *p)
{
    unsigned char bytes[KEYS];
    ssize_t n = read(STDIN_FILENO, bytes, sizeof bytes);
    if (n <= 0)
        return n < 0 && (errno == EINTR || errno == EAGAIN);
    for (ssize_t i = 0; i < n; i++) {
        int key = top_keys_byte(&p->keys, bytes[i]);
        if (key != TOP_KEY_NONE && !top_view_key(&p->view, key, p->look.rows))
            return false;
    }
    return true;
}

static int run_screen(struct program *p)
{
    int err = screen_open();
    if (err != 0)
        return cli_failed(p->args, "the terminal: %s", uv_strerror(err));
    bool on = draw(p);
    p->due = p->read_at + p->interval;
    while (on) {
        struct pollfd from[] = { { STDIN_FILENO, POLLIN, 0 },
                                 { screen_signals(), POLLIN, 0 },
                                 { p->fd, POLLIN, 0 } }; /* of -1 nothing comes */
        double left = p->due - monotonic();
        int ready = poll(from, 3, left > 0 ? (int)ceil(left * 1000) : 0);
        if (ready < 0 && errno != EINTR)
            break;
        bool changed = false;
        if (from[1].revents != 0 && screen_take_signals()) {
            look(p);
            changed = true;
        }
        if (from[0].revents != 0) {
            on = read_keys(p);
            changed = true;
        }
        if (p->fd >= 0 && from[2].revents != 0)
            changed = read_answer(p) || changed;
        double now = monotonic();
        if (now >= p->due)
            changed = tick(p, now) || changed;
        if (on && changed)
            on = draw(p);
    }
    screen_close();
    return 0;
}

/* --- the command --- */

static bool has_screen(void)
{
    const char *kind = getenv("TERM");
    return isatty(STDIN_FILENO) && isatty(STDOUT_FILENO) && kind != NULL && kind[0] != '\0' &&
           strcmp(kind, "dumb") != 0;
}

static bool read_interval(const struct cli_args *a, double *seconds)
{
    const char *text = a->value[CLI_INTERVAL];
    char *end = NULL;
    *seconds = text != NULL ? strtod(text, &end) : 1;
    return text == NULL || (end != text && *end == '\0' && *seconds >= .1 && *seconds <= 3600);
}

int cli_top(int argc, char **argv)
{
    struct cli_args a;
    if (cli_args_parse(&a, "top", argc, argv) != 0)
        return 2;
    struct program p = { .args = &a, .fd = -1 };
    if (!read_interval(&a, &p.interval)) {
        cli_failed(&a, "--interval must be 0.1 to 3600 seconds");
        return 2;
    }
    bool once = a.json || a.value[CLI_ONCE] != NULL;
    metrics_page_init(&p.pages[0]);
    metrics_page_init(&p.pages[1]);
    buf_init(&p.answer);
    top_view_init(&p.view);
    look(&p);
    int code = ask(&p);
    if (code == 0)
        code = !once && has_screen() ? run_screen(&p) : run_plain(&p, once);
    if (p.fd >= 0)
        close(p.fd);
    if (p.shown)
        top_deinit(&p.top);
    buf_deinit(&p.answer);
    metrics_page_deinit(&p.pages[0]);
    metrics_page_deinit(&p.pages[1]);
    return code;
}
