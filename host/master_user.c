/* See master.h: the configuration's user. Root opens the sockets, gives the user what is in
 * data_dir and run_dir, and becomes it; Redis, workers, the log writer and every later trial are
 * its children. Nothing has to be bound again: an upgrade and a worker's restart inherit the
 * sockets. */
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "log.h"
#include "master.h"
#include "paths.h"

int master_user_find(struct master *m)
{
    const char *text = plan_text(m->plan, "user");
    char why[PRIVILEGES_WHY];
    if (text == NULL || privileges_find(text, &m->user, why) == 0)
        return 0;
    log_error("user: %s", why);
    return -1;
}

static void give(const char *dir, const char *name, const struct identity *id)
{
    char path[PATH_MAX + 32];
    snprintf(path, sizeof path, "%s%s%s", dir, name[0] != '\0' ? "/" : "", name);
    int err = privileges_own(path, id);
    if (err != 0 && err != UV_ENOENT)
        log_warn("%s: cannot be given to the user: %s", path, uv_strerror(err));
}

/* The files that we and Redis make, and no others: a folder may hold more than ours. */
static void give_files(struct master *m)
{
    static const char *const names[] = { "lock",         "redis.log",     "redis.sock",
                                         "tollgate.pid", "appendonlydir", "admin.sock",
                                         "routing.json" };
    const char *const dirs[] = { plan_text(m->plan, "data_dir"), m->run_dir };
    for (size_t d = 0; d < 2; d++) {
        privileges_own_folder(dirs[d], &m->user);
        for (size_t i = 0; i < sizeof names / sizeof *names; i++)
            give(dirs[d], names[i], &m->user);
    }
}

int master_user_become(struct master *m)
{
    char why[PRIVILEGES_WHY];
    if (m->user.uid == 0)
        return 0;
    if (geteuid() == 0) {
        paths_make(plan_text(m->plan, "data_dir"));
        give_files(m);
    }
    if (privileges_become(&m->user, why) != 0) {
        log_error("user: %s", why);
        return -1;
    }
    if (atoi(plan_text(m->plan, "core_dumps")) != 0)
        prctl(PR_SET_DUMPABLE, 1, 0, 0, 0); /* which the kernel took away with the user */
    log_info("running as %s", plan_text(m->plan, "user"));
    return 0;
}
