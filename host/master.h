/* The process that `tollgate run` is. It holds what must not go down with a worker (sockets, the
 * zone, the private Redis, the committed configuration), starts and watches the workers, and never
 * runs Lua.
 *
 *   master.c         its life: start, signals, drain, end
 *   master_worker.c  starting, replacing and ending workers
 *   master_guard.c   the watchdog and the quarantine
 *   master_check.c   the trial of a configuration in a throw-away child
 *   master_reload.c  all workers take a new configuration, or none does
 *   master_routing.c the routing version that plugins report
 *   master_upgrade.c another program takes over in place
 *   master_watch.c   files that change
 *   master_socket.c  listening sockets
 *   master_user.c    becoming the configuration's user
 *   master_tickets.c keys of TLS session tickets
 *   master_log.c     the process that writes the access log
 *   master_status.c  what it knows, as JSON and as text
 *   master_metrics.c the same and what plugins count, for Prometheus
 *   master_command.c what people ask of plugins
 *   master_admin.c   actions over a Unix socket
 *   master_http.c    health and figures over HTTP */
#ifndef TOLLGATE_MASTER_H
#define TOLLGATE_MASTER_H

#include <limits.h>
#include <stdio.h>
#include <sys/types.h>

#include "buf.h"
#include "control.h"
#include "loop.h"
#include "plan.h"
#include "privileges.h"
#include "redisd.h"
#include "shared.h"
#include "zone.h"

enum member_state { MEMBER_STARTING, MEMBER_SERVING, MEMBER_DRAINING };

/* One worker process. */
struct member {
    struct member *next;
    struct master *m;
    unsigned place, slot;
    pid_t pid;
    struct control *control;
    enum member_state state;
    bool adopted;           /* started by the program before an upgrade */
    uint64_t started;       /* ms of loop_now */
    uint64_t asked, loaded; /* numbers of generations */
    uint64_t interrupted;   /* when the watchdog asked it to let go; 0: not */
    uint64_t kill_at;       /* a drain that must be over; 0: none */
};

/* Where a worker belongs: a set of sockets, one for each address. */
struct place {
    struct master *m;
    unsigned index, crashes; /* crashes in a row */
    struct timer restart;
};

struct quarantined {
    struct quarantined *next;
    unsigned kills;
    bool active;
    char plugin[];
};

struct waiter {
    struct waiter *next;
    void (*done)(void *arg, bool ok, struct slice text);
    void *arg;
};

struct check;
struct command;
struct watch;
struct admin;
struct http;
struct logger;

struct master {
    struct loop loop;
    const char *config;
    char exe[PATH_MAX]; /* where our program was started from */
    char run_dir[PATH_MAX];
    struct identity user; /* whom we become; uid 0: nobody */
    int pid_fd;           /* of tollgate.pid, locked: the run_dir is ours. 0: not yet */
    struct zone *zone;
    int zone_fd;
    struct shared *shared; /* the dictionary */
    unsigned places, naddresses;
    int *sockets; /* naddresses * places */
    struct place *place;
    struct member *members;
    struct plan *plan; /* committed, older ones behind it */
    struct redisd *redisd;
    uv_signal_t signals[5];
    uv_signal_t child;
    struct timer guard;
    struct timer tickets;      /* the next key is due */
    uint64_t tickets_made;     /* when the newest was; ms of loop_now. 0: not by us */
    uint64_t guard_due, awake; /* the watchdog counts from here at the earliest */
    struct quarantined *quarantine;
    /* --- reload --- */
    struct check *check;            /* under way */
    struct plan *next;              /* passed its trial, being loaded */
    struct waiter *waiters, *later; /* of the reload under way; of the one behind it */
    bool again;
    uint64_t last_number; /* of generations, given out so far */
    struct {
        int64_t at;
        bool ok;
        char text[512];
    } last_reload;
    struct {
        uint64_t wanted;           /* version that was published, as reported last; 0: none */
        uint64_t asked;            /* a reload for it is under way; 0: none */
        uint64_t failed, retry_at; /* the last one that could not be loaded */
        uint64_t followed,
            confirmed; /* when a plugin reported; when what runs was what is published. 0: never */
        uint64_t stale_ms; /* 0: never stale */
        int next_policy;   /* descriptor of what asked stands for; -1: files */
        char problem[256]; /* why failed */
    } routing;
    bool upgrading; /* a trial of the other program is under way */
    bool rolling;   /* adopted workers are being replaced */
    void (*upgrade_done)(void *arg, bool ok, struct slice text);
    void *upgrade_arg;
    struct command *commands; /* that have not been answered */
    uint64_t last_command;
    struct watch *watch;
    struct admin *admin;
    struct http *http;
    struct logger *logger;
    int64_t started;          /* ms since the epoch */
    bool ready, ending, gone; /* gone: the workers are */
    int code;
};

/* Serves until it is told to end; returns the exit code. */
int master_run(const char *config);
/* Drains and ends with that code. A second call cuts off. */
void master_end(struct master *m, int code);
/* Signals that we look at wait while they are held. */
void master_signals_hold(bool hold);
/* The last worker has gone. */
void master_workers_gone(struct master *m);

/* master_worker.c */
void master_worker_start(struct master *m, unsigned place);
void master_worker_lost(struct master *m, pid_t pid, int status);
void master_workers_drain(struct master *m);
void master_workers_abort(struct master *m);
void master_send_all(struct master *m, const char *text);
/* One that the program before us started. */
void master_worker_adopt(struct master *m, unsigned place, unsigned slot, pid_t pid, int fd,
                         int state);
void master_worker_drain(struct master *m, struct member *w);
void master_place_init(struct master *m);
void master_place_deinit(struct master *m);

/* master_guard.c */
void master_guard_start(struct master *m);
/* A worker was killed while it ran what the mark names. */
void master_guard_killed(struct master *m, struct member *w, uint64_t mark);
void master_guard_tell(struct master *m, struct member *w);
void master_guard_lift(struct master *m);
void master_guard_deinit(struct master *m);
const struct plan *master_plan_of(const struct master *m, uint64_t number);

/* master_check.c: runs the trial. on_done is called once: fd is the snapshot (to be taken), or -1
 * with faults. */
struct check *check_start(struct master *m, const char *exe, uint64_t limit_ms, uint64_t memory,
                          void (*on_done)(struct master *m, int fd, struct slice faults));
pid_t check_pid(const struct check *c);
/* Its process has ended. */
void check_ended(struct check *c, int status);
void check_stop(struct check *c);

/* master_reload.c: done (or NULL) is called once with the outcome. */
void master_reload(struct master *m, const char *why,
                   void (*done)(void *arg, bool ok, struct slice text), void *arg);
void master_reload_loaded(struct master *m, struct member *w, uint64_t number);
void master_reload_failed(struct master *m, uint64_t number, struct slice faults);
void master_reload_lost(struct master *m, struct member *w);
/* Begins one that was asked for while there was something else to do. */
void master_reload_again(struct master *m);
void master_reload_stop(struct master *m);

/* master_routing.c: what a worker's plugin reports: "VERSION|- STALE_MS", and a descriptor of the
 * policy or -1, which is taken. */
void master_routing_follow(struct master *m, const char *text, int policy);
/* A new generation serves: it is to report. */
void master_routing_switched(struct master *m);
/* NULL, or why what runs must be taken for out of date. */
const char *master_routing_stale(struct master *m);
void master_routing_status(struct master *m, struct buf *out); /* JSON member */

/* master_upgrade.c: done (or NULL) is called once, just before the other program takes over, or
 * with why not. */
struct kept {
    int http, redis_pid, redis_lock; /* http, lock: descriptors, -1 where there is none */
};
void master_upgrade(struct master *m, void (*done)(void *arg, bool ok, struct slice text),
                    void *arg);
/* False where we have not taken over from another program; else what it kept is in m and k. */
bool master_upgraded(struct master *m, struct kept *k);
/* Goes on replacing adopted workers. */
void master_roll(struct master *m);

/* master_watch.c */
void master_watch_start(struct master *m);
void master_watch_stop(struct master *m);

/* master_socket.c: all sockets of the plan. 0, or -1 (logged). */
int master_sockets_open(struct master *m);
/* From now on connections are refused, by the workers too, and Unix sockets' files are gone. */
void master_sockets_shut(struct master *m);

/* master_tickets.c: also after each change of the plan. */
void master_tickets_start(struct master *m);
void master_tickets_stop(struct master *m);

/* master_log.c: once the zone is there. */
void master_log_init(struct master *m);
void master_log_deinit(struct master *m);
/* The end of a slot's pipe that its worker writes; -1 where it cannot be made (logged). */
int master_log_pipe(struct master *m, unsigned slot);
/* The log writer does as the committed configuration says; it is started where it is needed. */
void master_log_apply(struct master *m);
void master_log_reopen(struct master *m);
/* True where it was the log writer that ended. */
bool master_log_lost(struct master *m, int *status);
/* Reads and writes what is left; called behind the last worker. on_stopped is called at once or
 * later. */
void master_log_stop(struct master *m, void (*on_stopped)(struct master *m));
/* Over an upgrade: lines of what is kept, flags of its descriptors, and such a line taken (false:
 * it is another's). */
void master_log_state(const struct master *m, FILE *f);
void master_log_keep(const struct master *m, int flags);
bool master_log_take(struct master *m, const char *word, const char *rest);
/* The log writer of the program before gives way to one of ours. */
void master_log_renew(struct master *m);

/* master_command.c: asks a plugin, by a worker: request as host/lua/command.lua reads it. done is
 * called once, later. */
void master_command(struct master *m, struct slice request, uint64_t limit_ms,
                    void (*done)(void *arg, bool ok, struct slice text), void *arg);
/* What all plugins say of themselves, as a JSON object. */
void master_command_status(struct master *m, void (*done)(void *arg, bool ok, struct slice text),
                           void *arg);
/* What a worker answers: "ID ok|failed", and a descriptor of the text or -1, which is taken. */
void master_command_answered(struct master *m, const char *text, int fd);
void master_command_lost(struct master *m, const struct member *w);
void master_commands_stop(struct master *m);

/* master_user.c: 0, or -1 (logged). Finds whom to become; becomes it, behind what needs root. */
int master_user_find(struct master *m);
int master_user_become(struct master *m);

/* master_status.c, master_metrics.c */
/* plugins: of master_command_status, or empty where they said nothing. */
void master_status(struct master *m, struct slice plugins, struct buf *out);
void master_metrics(struct master *m, struct buf *out);
/* To a plugin that asked, with the id that it gave. */
void master_metrics_tell(struct master *m, struct member *w, uint64_t id);
/* NULL where requests can be served, else why not. */
const char *master_not_ready(struct master *m);

/* master_admin.c: reload, upgrade, reopen. False where there is no such action; else done is called
 * once, maybe before this returns. */
bool master_act(struct master *m, struct slice verb,
                void (*done)(void *arg, bool ok, struct slice text), void *arg);

/* master_admin.c, master_http.c: 0, or -1 (logged). */
int master_admin_start(struct master *m);
void master_admin_stop(struct master *m);
/* fd: a socket that listens already, or -1. */
int master_http_start(struct master *m, const char *host, int port, int fd);
int master_http_fd(const struct master *m);
/* TLS as the plan says; without a change where that fails (logged). */
void master_http_tls(struct master *m);
void master_http_stop(struct master *m);

#endif
