/* One loaded configuration: a Lua state, its plugins, and the routes. Exchanges hold the generation
 * that they began on; when it is no longer current and nobody holds it, it is stopped and freed. */
#ifndef TOLLGATE_GENERATION_H
#define TOLLGATE_GENERATION_H

#include <lua.h>

#include "access_format.h"
#include "buf.h"
#include "forwarded.h"
#include "parse.h"
#include "route.h"
#include "services.h"
#include "snapshot.h"
#include "task.h"
#include "trace.h"

struct tls_config;
struct tls_context;

struct listen_address {
    const char *host;
    int port;
    const struct tls_config *tls_config; /* NULL: none */
    struct tls_context *tls;             /* likewise; a reference */
    const char *path;                    /* of a Unix socket; NULL: host and port */
    unsigned mode;                       /* of its file */
    bool proxied;           /* connections begin with a header of the PROXY protocol, */
    struct trusted proxies; /* which only these may send */
};

struct access_settings {
    const char *to; /* in the log writer's words (log_writer.h) */
    struct access_format format;
    struct access_rules rules;
};

/* What the configuration says besides routes. Text is owned by the generation. */
struct settings {
    struct listen_address *listen;
    uint32_t nlisten;
    struct listen_address admin;
    const char *admin_token; /* NULL: the admin listener only reads */
    bool has_admin;
    const char *redis_url;                         /* NULL: private */
    struct tls_remote redis_tls;                   /* its context is held */
    uint64_t redis_timeout, redis_connect_timeout; /* ms */
    bool redis_hash_tags, redis_eviction_refuse;
    const char *data_dir, *run_dir;
    const char *user; /* that the gateway becomes; NULL: none */
    bool core_dumps;
    const char *log_level;
    const struct access_settings *access; /* NULL: no access log */
    struct slice via[2];                  /* value of Via by minor version; p NULL: none */
    struct {
        uint64_t head, body, keepalive, write, drain, handshake, ticket_keys;
    } timeouts; /* ms */
    struct parse_limits parse;
    uint32_t connections, connections_per_address; /* the latter in each worker; 0: any */
    uint64_t buffered;                             /* bytes in each worker */
    size_t pipelined;                              /* bytes */
    uint64_t body_rate; /* bytes a second, where no route is known; 0: any */
    struct upstream_limits upstream;
    struct resolve_options resolver;
    struct forwarded_rules forwarded;
    struct trace_rules tracing;
    uint32_t workers;  /* 0: as many as cores */
    uint64_t watchdog; /* ms */
    uint32_t quarantine_after;
    const char *quarantine_policy;
    bool reload_watch;
    uint64_t reload_drain, reload_check; /* ms */
    uint64_t reload_memory;              /* bytes */
    uint64_t shared_size;                /* bytes */
};

struct generation {
    uint32_t refs;
    bool stopped;
    uint64_t number;
    struct snapshot *snapshot;       /* what it is loaded from; NULL for a bare one */
    struct generation *next, **link; /* in services.generations */
    lua_State *L;
    struct task_pool tasks;
    struct services *sv;
    struct arena arena; /* settings and routes */
    struct settings settings;
    struct routes *table;
    struct route *routes;
    uint32_t nroutes;
    struct buf warnings; /* of its configuration, one a line */
    uint32_t timers;     /* of plugins, running */
    struct timer_entry *timer_list;
    struct health *health; /* checks of targets; NULL while suspended, and where there are none */
    struct redis_subscription *redis_subscriptions;
    struct redis_script *redis_scripts;
    int refs_lua; /* registry references that the host took and has not given back */
};

/* Loads a configuration. Faults are appended to `faults`, one a line with its place; NULL then.
 * `check_only` makes no connections' worth of objects (no origins, no init). */
struct generation *generation_load(struct services *sv, const char *path, bool check_only,
                                   struct buf *faults);
/* One without a configuration, for running a file of Lua: the runtime and the primitives, no
 * routes. */
struct generation *generation_bare(struct services *sv, struct buf *faults);
/* Pushes an embedded module of the runtime ("tollgate.NAME") on L, a coroutine of g. */
void generation_push_module(struct generation *g, lua_State *L, const char *name);
/* The same out of a snapshot, which is taken, as the generation of that number. */
struct generation *generation_load_from(struct services *sv, const char *path,
                                        struct snapshot *from, uint64_t number, bool check_only,
                                        struct buf *faults);
/* Runs the plugins' init, which must not wait. `old` (or NULL) has been suspended: what its
 * plugins' stop returned is given to the init of the same plugin on the route of the same name. 0,
 * or -1 with faults. */
int generation_start(struct generation *g, struct generation *old, struct buf *faults);
/* Runs the plugins' stop and keeps what they return; timers end. Requests may still run on it. */
void generation_suspend(struct generation *g);
/* What was to follow did not come: the plugins' init runs again, with what stop returned. */
void generation_resume(struct generation *g);
/* A plugin has been quarantined: it does not run any more. */
void generation_quarantine(struct generation *g, const struct quarantine *q);
/* The effective configuration as text, secrets masked. */
void generation_print(struct generation *g, struct buf *out);
void generation_hold(struct generation *g);
void generation_release(struct generation *g);
/* Runs the plugins' stop, where it has not been suspended; its timers end, but for those that
 * linger (see api_timer.c). */
void generation_stop(struct generation *g);
/* For generation_life.c. */
bool generation_quarantined(const struct generation *g, const char *plugin);

/* Registry references with a count, so that a leak shows. */
int generation_ref(struct generation *g, lua_State *L); /* pops the value */
void generation_unref(struct generation *g, int ref);

#endif
