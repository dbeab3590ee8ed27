/* See master.h: actions, over a Unix socket (admin.sock, 0600) in the run directory. A request is
 * one line, an answer is text behind a first line that says "ok" or "failed"; then the connection
 * ends. reload, upgrade, reopen (the access log's file), status (JSON), metrics, restart-keys
 * (for check), plugin (behind it what host/lua/command.lua reads). */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "control_client.h"
#include "log.h"
#include "master.h"
#include "mem.h"
#include "stream.h"

enum { SOCKET_PATH = 107, BACKLOG = 16, LINE = 8192, PLUGIN_MS = 5000, LINGER_MS = 2000 };

struct action {
    struct action *next, **link;
    struct admin *a;
    struct stream *stream; /* NULL: the client has gone */
    struct buf line;
    bool waits; /* for what it asked for */
};

struct admin {
    uv_pipe_t handle;
    struct master *m;
    struct action *actions;
    char path[PATH_MAX + 16], link[PATH_MAX];
};

static void action_free(struct action *x)
{
    if (x->stream != NULL)
        stream_close(x->stream);
    buf_deinit(&x->line);
    *x->link = x->next;
    if (x->next != NULL)
        x->next->link = x->link;
    mem_free(x);
}

static void finish(struct action *x, bool ok, struct slice text)
{
    if (x->stream != NULL) {
        stream_write(x->stream, ok ? SLICE("ok\n") : SLICE("failed\n"));
        stream_write(x->stream, text);
        stream_finish(x->stream, LINGER_MS);
        x->stream = NULL;
    }
    action_free(x);
}

static void on_acted(void *arg, bool ok, struct slice text)
{
    finish(arg, ok, text);
}

bool master_act(struct master *m, struct slice verb,
                void (*done)(void *arg, bool ok, struct slice text), void *arg)
{
    if (slice_eq(verb, SLICE("reload"))) {
        master_reload(m, "asked for", done, arg);
    } else if (slice_eq(verb, SLICE("upgrade"))) {
        master_upgrade(m, done, arg);
    } else if (slice_eq(verb, SLICE("reopen"))) {
        master_log_reopen(m);
        done(arg, true, SLICE("the access log's file is opened anew"));
    } else {
        return false;
    }
    return true;
}

static void restart_lines(struct master *m, struct buf *out)
{
    plan_restart_lines(m->plan->snapshot, out);
}

static void on_status(void *arg, bool ok, struct slice plugins)
{
    struct action *x = arg;
    struct buf out;
    buf_init(&out);
    master_status(x->a->m, ok ? plugins : SLICE(""), &out);
    finish(x, true, buf_slice(&out));
    buf_deinit(&out);
}

static void act(struct action *x)
{
    struct master *m = x->a->m;
    struct slice verb = { x->line.p,
                          (size_t)((const char *)memchr(x->line.p, '\n', x->line.n) - x->line.p) };
    struct buf out;
    void (*write)(struct master *, struct buf *) = NULL;
    const struct slice plugin = SLICE("plugin ");
    if (slice_eq(verb, SLICE("metrics")))
        write = master_metrics;
    else if (slice_eq(verb, SLICE("restart-keys")))
        write = restart_lines;
    if (write != NULL) {
        buf_init(&out);
        write(m, &out);
        finish(x, true, buf_slice(&out));
        buf_deinit(&out);
        return;
    }
    x->waits = true; /* and may be gone when it comes back */
    if (slice_eq(verb, SLICE("status")))
        master_command_status(m, on_status, x);
    else if (slice_starts(verb, plugin))
        master_command(m, (struct slice){ verb.p + plugin.n, verb.n - plugin.n }, PLUGIN_MS,
                       on_acted, x);
    else if (!master_act(m, verb, on_acted, x))
        finish(x, false, SLICE("there are: reload, upgrade, reopen, status, metrics, plugin\n"));
}

static void on_read(void *arg, const char *bytes, size_t n)
{
    struct action *x = arg;
    if (x->waits)
        return;
    buf_add(&x->line, bytes, n);
    if (memchr(x->line.p, '\n', x->line.n) != NULL)
        act(x);
    else if (x->line.n > LINE)
        action_free(x);
}

/* The client went: a reload goes on. */
static void on_end(void *arg, int err)
{
    struct action *x = arg;
    if (!x->waits) {
        action_free(x);
    } else if (err != 0) {
        stream_close(x->stream);
        x->stream = NULL;
    }
}

static void on_connection(uv_stream_t *handle, int status)
{
    static const struct stream_events events = { on_read, on_end, NULL };
    struct admin *a = handle->data;
    int err = 0;
    struct stream *s = status == 0 ? stream_accept(&a->m->loop, handle, &err) : NULL;
    if (s == NULL)
        return;
    struct action *x = mem_zalloc(sizeof *x);
    x->a = a;
    x->stream = s;
    buf_init(&x->line);
    x->next = a->actions;
    x->link = &a->actions;
    if (x->next != NULL)
        x->next->link = &x->next;
    a->actions = x;
    stream_start(s, &events, x);
}

static void on_closed(uv_handle_t *handle)
{
    mem_free(handle->data);
}

/* Where it cannot be made, the configuration still names the place. */
static void make_link(struct admin *a)
{
    struct stat st;
    if (!control_link(a->m->config, a->link, sizeof a->link))
        return;
    if (lstat(a->link, &st) == 0 && st.st_uid == geteuid())
        unlink(a->link);
    if (symlink(a->path, a->link) != 0)
        a->link[0] = '\0';
}

int master_admin_start(struct master *m)
{
    struct admin *a = mem_zalloc(sizeof *a);
    a->m = m;
    snprintf(a->path, sizeof a->path, "%s/admin.sock", m->run_dir);
    uv_pipe_init(&m->loop.uv, &a->handle, 0);
    a->handle.data = a;
    int err = strlen(a->path) > SOCKET_PATH ? UV_ENAMETOOLONG : 0;
    if (err == 0) {
        unlink(a->path); /* of one that was killed: the run_dir is ours */
        mode_t before = umask(0177);
        err = uv_pipe_bind(&a->handle, a->path);
        umask(before);
    }
    if (err == 0)
        err = uv_listen((uv_stream_t *)&a->handle, BACKLOG, on_connection);
    if (err == 0) {
        m->admin = a;
        make_link(a);
        return 0;
    }
    log_error("%s: %s", a->path, uv_strerror(err));
    uv_close((uv_handle_t *)&a->handle, on_closed);
    return -1;
}

void master_admin_stop(struct master *m)
{
    struct admin *a = m->admin;
    if (a == NULL)
        return;
    m->admin = NULL;
    while (a->actions != NULL)
        action_free(a->actions);
    unlink(a->path);
    if (a->link[0] != '\0')
        unlink(a->link);
    uv_close((uv_handle_t *)&a->handle, on_closed);
}
