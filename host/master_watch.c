/* See master.h: files that change. The directories of all files that the configuration was made of
 * are watched, since a watch on a file misses a rename over it and a symlink that is turned; and
 * every 2 s all files are looked at, for file systems that tell nothing. A change is followed by a
 * pause, so that a person or a tool can finish what it writes. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "container.h"
#include "log.h"
#include "master.h"
#include "mem.h"

enum { LOOK_MS = 2000, SOON_MS = 20, SETTLE_MS = 150, DIRECTORIES = 256 };

struct directory {
    struct directory *next;
    uv_fs_event_t event;
    char path[];
};

struct file {
    struct file *next;
    char stamp[SNAPSHOT_STAMP];
    char path[];
};

struct watch {
    struct master *m;
    struct directory *directories;
    unsigned ndirectories;
    struct file *files;
    struct timer look, settle;
};

/* True where a file is not what it was; from now on it is compared with what it is now. */
static bool changed(struct watch *w)
{
    bool any = false;
    for (struct file *f = w->files; f != NULL; f = f->next) {
        char now[SNAPSHOT_STAMP];
        snapshot_stamp(f->path, now);
        if (strcmp(now, f->stamp) != 0)
            any = true;
        strcpy(f->stamp, now);
    }
    return any;
}

static void on_settle(struct timer *t)
{
    struct watch *w = CONTAINER(t, struct watch, settle);
    if (changed(w)) /* still being written, maybe */
        timer_set(&w->m->loop, t, SETTLE_MS);
    else
        master_reload(w->m, "files have changed", NULL, NULL);
}

static void check(struct watch *w)
{
    if (w->settle.at == 0 && changed(w))
        timer_set(&w->m->loop, &w->settle, SETTLE_MS);
}

static void on_look(struct timer *t)
{
    struct watch *w = CONTAINER(t, struct watch, look);
    timer_set(&w->m->loop, t, LOOK_MS);
    check(w);
}

static void on_event(uv_fs_event_t *h, const char *name, int events, int status)
{
    struct watch *w = h->data;
    (void)name, (void)events;
    if (status == 0 && w->look.at > loop_now(&w->m->loop) + SOON_MS)
        timer_set(&w->m->loop, &w->look,
                  SOON_MS); /* not at each: a log beside the configuration grows all the time */
}

static void on_closed(uv_handle_t *h)
{
    mem_free(CONTAINER(h, struct directory, event));
}

static void add_directory(struct watch *w, const char *path)
{
    char dir[PATH_MAX];
    const char *slash = strrchr(path, '/');
    snprintf(dir, sizeof dir, "%.*s",
             slash == NULL   ? 1
             : slash == path ? 1
                             : (int)(slash - path),
             slash == NULL ? "." : path);
    for (const struct directory *d = w->directories; d != NULL; d = d->next) {
        if (strcmp(d->path, dir) == 0)
            return;
    }
    if (w->ndirectories == DIRECTORIES)
        return; /* the rest is looked at */
    struct directory *d = mem_zalloc(sizeof *d + strlen(dir) + 1);
    strcpy(d->path, dir);
    uv_fs_event_init(&w->m->loop.uv, &d->event);
    d->event.data = w;
    if (uv_fs_event_start(&d->event, on_event, dir, 0) != 0) {
        uv_close((uv_handle_t *)&d->event, on_closed);
        return;
    }
    d->next = w->directories;
    w->directories = d;
    w->ndirectories++;
}

static void add_file(void *arg, const char *path)
{
    struct watch *w = arg;
    struct file *f = mem_zalloc(sizeof *f + strlen(path) + 1);
    strcpy(f->path, path);
    struct slice read = snapshot_stamp_read(w->m->plan->snapshot, path);
    if (read.p != NULL)
        snprintf(f->stamp, sizeof f->stamp, "%s", read.p);
    else
        snapshot_stamp(path, f->stamp);
    f->next = w->files;
    w->files = f;
    add_directory(w, path);
}

void master_watch_stop(struct master *m)
{
    struct watch *w = m->watch;
    if (w == NULL)
        return;
    m->watch = NULL;
    for (struct directory *d = w->directories, *next; d != NULL; d = next) {
        next = d->next;
        uv_close((uv_handle_t *)&d->event, on_closed);
    }
    for (struct file *f = w->files, *next; f != NULL; f = next) {
        next = f->next;
        mem_free(f);
    }
    timer_deinit(&m->loop, &w->look);
    timer_deinit(&m->loop, &w->settle);
    mem_free(w);
}

/* Again for each committed plan: it may be made of other files. */
void master_watch_start(struct master *m)
{
    master_watch_stop(m);
    if (!m->plan->watch)
        return;
    struct watch *w = mem_zalloc(sizeof *w);
    w->m = m;
    m->watch = w;
    snapshot_each_path(m->plan->snapshot, add_file, w);
    w->look.cb = on_look;
    w->settle.cb = on_settle;
    timer_set(&m->loop, &w->look, LOOK_MS);
    check(w); /* what has changed since it was read */
}
