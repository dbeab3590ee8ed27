/* Coroutines of plugins. This is the only file that calls lua_resume, so there is one place where
 * Lua starts, waits, ends or fails.
 *
 * A task has one coroutine, at most one wait, and one cleanup for it. A wait ends once: by
 * task_resume, or by task_cancel, which calls the cleanup, drops the coroutine and never resumes
 * it. */
#ifndef TOLLGATE_TASK_H
#define TOLLGATE_TASK_H

#include <lua.h>
#include <stdbool.h>
#include <stdint.h>

struct task;

/* Says what Lua runs at this moment, for whoever watches from outside. */
struct task_watch {
    uint64_t *mark;              /* 0: nothing */
    lua_State *volatile running; /* any thread of the Lua state that runs */
};

/* Coroutines of one Lua state: reused while they end without an error. */
struct task_pool {
    lua_State *L;
    int *idle; /* registry references */
    uint32_t nidle, idle_cap;
    uint32_t alive;           /* tasks that have not been freed */
    struct task *current;     /* whose Lua runs right now; NULL outside */
    struct task_watch *watch; /* NULL: nobody watches */
};

enum task_state { TASK_IDLE, TASK_RUNNING, TASK_WAITING, TASK_FAILED };

enum task_outcome {
    TASK_DONE,  /* returned; results are on task_lua(t) */
    TASK_WAITS, /* will go on by itself; on_settled is called then */
    TASK_ERROR  /* raised; task_error(t) has message and traceback */
};

void task_pool_init(struct task_pool *p, lua_State *L);
void task_pool_deinit(struct task_pool *p);

/* on_settled is called when a call that had waited is done or failed; never from within task_call.
 * It may free the task. */
struct task *task_new(struct task_pool *p,
                      void (*on_settled)(void *owner, enum task_outcome outcome), void *owner);
/* Cancels a wait, gives the coroutine back. Not while its Lua is running: then it is freed when
 * that returns. */
void task_free(struct task *t);

/* The coroutine: push a function and its arguments, then call. */
lua_State *task_lua(struct task *t);
enum task_outcome task_call(struct task *t, int nargs);
/* Valid until the next call; a failed task can only be freed. */
const char *task_error(const struct task *t);
enum task_state task_state(const struct task *t);
void *task_owner(const struct task *t);
/* Seconds that this task's Lua runs from now on are added there; NULL: nowhere. */
void task_set_meter(struct task *t, double *seconds);
/* What the watch shows while this task's Lua runs (zone_mark); also after it has waited. */
void task_set_mark(struct task *t, uint64_t mark);
uint64_t task_mark(const struct task *t);
/* Lua that runs in no task: a mark around it. Returns the mark before, to be given back. */
uint64_t task_pool_mark(struct task_pool *p, uint64_t mark);
/* A request id that log lines of this task carry; borrowed, NULL for none. */
void task_set_tag(struct task *t, const char *tag);
const char *task_tag(const struct task *t);

/* --- for primitives --- */

/* The task that L runs in, which can wait now. Raises a Lua error that names `what` where it
 * cannot: outside a task, or below a C function that no yield crosses (table.sort, string.gsub,
 * require, …). Call it before anything is started. */
struct task *task_check(lua_State *L, const char *what);
/* Ends a primitive: return task_wait(…). `cancel` is called at most once, when the wait is given
 * up. */
int task_wait(lua_State *L, struct task *t, void (*cancel)(void *arg), void *arg);
/* The wait is over: push nresults on task_lua(t) first. Never from within the primitive itself. */
void task_resume(struct task *t, int nresults);

/* Something that ends with its task at the latest, such as a stream that a plugin opened and
 * forgot. Embedded in its owner, zeroed; `release` is called once, when the task is freed, unless
 * task_unhold came before. */
struct task_hold {
    struct task_hold *next, **link;
    void (*release)(struct task_hold *h);
};
void task_hold(struct task *t, struct task_hold *h);
void task_unhold(struct task_hold *h);

#endif
