/* See load_check.h. What the master must know without running Lua goes along as notes (plan.h reads
 * them). */
#include "load_check.h"

#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <openssl/evp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "encoding.h"
#include "log.h"
#include "mem.h"
#include "paths.h"
#include "privileges.h"
#include "tls_config.h"
#include "tls_server.h"
#include "zone.h"

static void note(struct snapshot *s, const char *name, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void note(struct snapshot *s, const char *name, const char *format, ...)
{
    char text[PATH_MAX + 256];
    va_list ap;
    va_start(ap, format);
    vsnprintf(text, sizeof text, format, ap);
    va_end(ap);
    snapshot_set_note(s, name, slice_of(text));
}

static int64_t earlier(int64_t expires, const struct tls_context *tls)
{
    int64_t one = tls != NULL ? tls_server_expires(tls) : INT64_MAX;
    return one < expires ? one : expires;
}

/* The master needs no more than its digest. */
static void note_token(struct snapshot *s, const char *token)
{
    unsigned char sum[32];
    char hex[64];
    EVP_Digest(token, strlen(token), sum, NULL, EVP_sha256(), NULL);
    size_t n = encoding_hex((struct slice){ (const char *)sum, sizeof sum }, hex);
    note(s, "admin.token", "%.*s", (int)n, hex);
}

static void note_addresses(struct snapshot *s, const struct settings *set)
{
    struct buf all;
    buf_init(&all);
    for (uint32_t i = 0; i < set->nlisten; i++) {
        const struct listen_address *a = &set->listen[i];
        if (a->path != NULL)
            buf_printf(&all, "unix %o %s\n", a->mode, a->path);
        else
            buf_printf(&all, "%s %d\n", a->host, a->port);
    }
    snapshot_set_note(s, "listen", buf_slice(&all));
    buf_deinit(&all);
    if (set->has_admin)
        note(s, "admin", "%s %d\n", set->admin.host, set->admin.port);
    if (set->admin_token != NULL)
        note_token(s, set->admin_token);
}

/* The admin listener's TLS, which the master makes, and when the first certificate expires. */
static void note_tls(struct snapshot *s, const struct settings *set)
{
    struct buf bytes;
    int64_t expires = INT64_MAX;
    for (uint32_t i = 0; i < set->nlisten; i++)
        expires = earlier(expires, set->listen[i].tls);
    expires = earlier(expires, set->admin.tls);
    if (expires < INT64_MAX)
        note(s, "tls.expires", "%" PRId64, expires);
    if (set->admin.tls == NULL)
        return;
    buf_init(&bytes);
    tls_config_write(set->admin.tls_config, &bytes);
    snapshot_set_note(s, "admin.tls", buf_slice(&bytes));
    buf_deinit(&bytes);
}

void load_check_note(struct generation *g)
{
    char layout[64];
    struct snapshot *s = g->snapshot;
    const struct settings *set = &g->settings;
    note_addresses(s, set);
    note_tls(s, set);
    snapshot_set_note(s, "warnings", buf_slice(&g->warnings));
    note(s, "workers", "%" PRIu32, set->workers);
    note(s, "data_dir", "%s", set->data_dir);
    note(s, "run_dir", "%s", set->run_dir);
    if (set->user != NULL)
        note(s, "user", "%s", set->user);
    note(s, "core_dumps", "%d", set->core_dumps);
    if (set->redis_url != NULL)
        note(s, "redis", "%s %d %d", set->redis_url, set->redis_hash_tags,
             set->redis_eviction_refuse);
    note(s, "limits.connections", "%" PRIu32, set->connections);
    note(s, "timeouts.drain", "%" PRIu64, set->timeouts.drain);
    note(s, "timeouts.ticket_keys", "%" PRIu64, set->timeouts.ticket_keys);
    note(s, "log.level", "%s", set->log_level);
    if (set->access != NULL)
        note(s, "log.access", "%s", set->access->to);
    note(s, "shared.size", "%" PRIu64, set->shared_size);
    note(s, "watchdog", "%" PRIu64, set->watchdog);
    note(s, "quarantine.after", "%" PRIu32, set->quarantine_after);
    note(s, "quarantine.policy", "%s", set->quarantine_policy);
    note(s, "reload.watch", "%d", set->reload_watch);
    note(s, "reload.check", "%" PRIu64, set->reload_check);
    note(s, "reload.memory", "%" PRIu64, set->reload_memory);
    zone_layout(layout, sizeof layout);
    note(s, "zone.layout", "%s", layout);
}

/* What the marks in the zone mean: route.N is a name, hook.N.M the plugin at that place of its
 * chain; and whether there is a plugin that takes commands. */
static void note_hooks(struct snapshot *s, struct generation *g)
{
    char name[64];
    lua_State *L = g->L;
    lua_getfield(L, LUA_REGISTRYINDEX, "tollgate.config");
    lua_getfield(L, -1, "chains");
    for (uint32_t i = 0, chains = (uint32_t)lua_objlen(L, -1); i < chains; i++) {
        lua_rawgeti(L, -1, (int)i + 1);
        lua_getfield(L, -1, "name");
        snprintf(name, sizeof name, "route.%" PRIu32, i);
        note(s, name, "%s", lua_tostring(L, -1));
        lua_pop(L, 1);
        lua_getfield(L, -1, "chain");
        for (int k = 1, n = (int)lua_objlen(L, -1); k <= n; k++) {
            lua_rawgeti(L, -1, k);
            lua_getfield(L, -1, "plugin");
            lua_getfield(L, -1, "command");
            if (!lua_isnil(L, -1))
                note(s, "commands", "1");
            lua_pop(L, 2);
            lua_getfield(L, -1, "name");
            snprintf(name, sizeof name, "hook.%" PRIu32 ".%d", i, k - 1);
            note(s, name, "%s", lua_tostring(L, -1));
            lua_pop(L, 2);
        }
        lua_pop(L, 2);
    }
    lua_pop(L, 2);
}

static int read_script(void *snapshot, const char *path, struct slice *text)
{
    return snapshot_file(snapshot, path, text);
}

/* Redis scripts of the quota, so that they are in the snapshot. */
static int read_scripts(struct snapshot *s, struct buf *faults)
{
    char home[PATH_MAX], dir[PATH_MAX + 16], path[PATH_MAX + 64];
    snprintf(dir, sizeof dir, "%s/scripts/redis", paths_home(home, sizeof home));
    int err = quota_try(dir, read_script, s, path, sizeof path);
    if (err != 0)
        buf_printf(faults, "%s: %s\n", path, uv_strerror(err));
    return err;
}

/* Only for the gateway itself: whoever checks a configuration may be somebody else. */
static bool on_trial;

struct unreadable {
    char *why;
    size_t size;
    bool found;
};

static void look(void *arg, const char *path, struct slice bytes)
{
    struct unreadable *u = arg;
    (void)bytes;
    if (u->found || access(path, R_OK) == 0 ||
        slice_ends(slice_of(path),
                   SLICE("/routing.json"))) /* ours: the master gives it to the user */
        return;
    u->found = true;
    snprintf(u->why, u->size, "it cannot read %s, which a reload has to", path);
}

/* What plugins do when they are loaded, they do as the user already. What was read before must be
 * there for the user, too: a reload has no other rights. */
static int become(const char *user, struct snapshot *read, char *why, size_t size)
{
    struct identity id;
    char reason[PRIVILEGES_WHY];
    struct unreadable u = { why, size, false };
    if (privileges_find(user, &id, reason) != 0 || privileges_become(&id, reason) != 0) {
        snprintf(why, size, "%s", reason);
        return -1;
    }
    privileges_hide();
    snapshot_each_file(read, look, &u);
    return u.found ? -1 : 0;
}

struct generation *load_check_try(const char *config, struct slice policy, struct buf *faults)
{
    struct loop *loop = mem_zalloc(sizeof *loop);
    struct services *sv = mem_zalloc(sizeof *sv);
    struct upstream_limits limits = { 0 };
    struct rds_config redis;
    const char *why = NULL;
    if (loop_init(loop) != 0)
        return NULL;
    log_set_level(LOG_SILENT); /* whoever serves will say it again */
    sv->loop = loop;
    sv->policy = policy;
    sv->become = on_trial ? become : NULL;
    sv->resolve = resolve_new(loop, &why);
    if (sv->resolve == NULL) {
        buf_printf(faults, "c-ares: %s\n", why);
        return NULL;
    }
    sv->upstream = upstream_new(loop, sv->resolve, &limits);
    sv->fetch = fetch_client_new(loop, sv->upstream);
    rds_config_parse(SLICE("redis://127.0.0.1"),
                     &redis); /* never started: a command in init waits, which is a fault */
    sv->rds = rds_new(loop, &redis);
    sv->rds_pool = rds_pool_new(loop, sv->rds);
    struct generation *g = generation_load(sv, config, false, faults);
    if (g == NULL || read_scripts(g->snapshot, faults) != 0 ||
        shared_new(&sv->shared, SHARED_SIZE_MIN) != 0 || generation_start(g, NULL, faults) != 0)
        return NULL;
    generation_stop(g);
    return g;
}

/* A descriptor's bytes, which stay for the life of the process. */
static struct slice read_given(const char *fd)
{
    struct stat st;
    int n = atoi(fd);
    if (strcmp(fd, "-") == 0 || fstat(n, &st) != 0)
        return (struct slice){ NULL, 0 };
    void *p = mmap(NULL, (size_t)st.st_size + 1, PROT_READ, MAP_PRIVATE, n, 0);
    return p != MAP_FAILED ? (struct slice){ p, (size_t)st.st_size } : (struct slice){ NULL, 0 };
}

static int run(const char *config, const char *policy, int out, struct buf *faults)
{
    struct generation *g = load_check_try(config, read_given(policy), faults);
    if (g == NULL)
        return -1;
    load_check_note(g);
    note_hooks(g->snapshot, g);
    int err = snapshot_write(g->snapshot, out);
    if (err != 0)
        buf_printf(faults, "the snapshot cannot be written: %s\n", uv_strerror(err));
    return err;
}

static void put(int fd, struct slice text)
{
    while (text.n > 0) {
        ssize_t n = write(fd, text.p, text.n);
        if (n <= 0)
            return;
        text = (struct slice){ text.p + n, text.n - (size_t)n };
    }
}

int load_check_main(int argc, char **argv)
{
    struct buf faults;
    if (argc != 4)
        return 2;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "-") != 0)
            fcntl(atoi(argv[i]), F_SETFD,
                  FD_CLOEXEC); /* a program that a plugin starts must not hold it */
    }
    on_trial = true;
    privileges_hide();
    buf_init(&faults);
    int code = run(argv[0], argv[3], atoi(argv[1]), &faults) == 0 ? 0 : 1;
    if (code == 0)
        buf_add_text(&faults, "ok\n");
    put(atoi(argv[2]), buf_slice(&faults));
    _exit(code); /* what plugins may have left open is of no interest */
}
