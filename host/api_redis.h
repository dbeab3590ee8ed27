/* Between the files of tg.redis: arguments and options out of Lua, what a command does to its
 * connection, and one wait for one or more replies. */
#ifndef TOLLGATE_API_REDIS_H
#define TOLLGATE_API_REDIS_H

#include "api.h"

enum { API_REDIS_ARGS = 1024, API_REDIS_COMMANDS = 10000 };

/* --- api_redis_args.c --- */

/* Text of arguments, borrowed from the Lua stack or from tables on it. */
struct redis_args {
    int n;
    struct slice v[API_REDIS_ARGS];
};

/* Raises unless the table at idx has only the keys 1 to n without a hole, and options of this
 * NULL-terminated list. `what` begins the message, `name` is the table's. Returns n. */
int api_redis_list(lua_State *L, int idx, const char *what, const char *name,
                   const char *const options[]);
/* Adds the items of the table at idx, or the stack's values from `first` to the top. Leaves
 * values on the stack that the text belongs to. */
void api_redis_add_list(lua_State *L, int idx, int n, const char *what, const char *name,
                        struct redis_args *a);
void api_redis_add_stack(lua_State *L, int first, const char *what, struct redis_args *a);
/* The field `timeout` (seconds) of the table at idx in ms; 0 where it is nil. */
uint64_t api_redis_timeout(lua_State *L, int idx, const char *what);
/* The same of a table of options at idx that has nothing else, or of none. */
uint64_t api_redis_timeout_option(lua_State *L, int idx, const char *what);

enum redis_kind {
    REDIS_PLAIN,
    REDIS_BLOCKS,  /* waits on the server */
    REDIS_CHANGES, /* changes the connection for good */
    REDIS_MULTI,
    REDIS_EXEC, /* ends what MULTI and WATCH began: DISCARD too */
    REDIS_WATCH,
    REDIS_UNWATCH,
    REDIS_LISTENS, /* SUBSCRIBE and theirs */
    REDIS_REFUSED  /* replies would no longer be matched to commands */
};
/* What a command does. Adds to *wait_ms how long it asks to wait on the server. */
enum redis_kind api_redis_kind(const struct redis_args *a, uint64_t *wait_ms);

/* --- api_redis_conn.c --- */

/* What tg.redis.connect gave. */
struct redis_conn {
    unsigned refs;  /* of the Lua object and of each call under way */
    unsigned calls; /* under way */
    struct rds_pool *pool;
    struct rds *r; /* NULL once it is given back */
    struct task_hold hold;
    bool multi, watching, changed;
};

void api_redis_conn_unref(struct redis_conn *c);
/* A command of this kind is about to be sent. */
void api_redis_conn_note(struct redis_conn *c, enum redis_kind kind);

/* --- api_redis_script.c --- */

struct redis_script;
void api_redis_script_unref(struct redis_script *s);

/* --- api_redis_call.c --- */

/* A task that waits for replies. It goes when the last one has come, also where the wait was given
 * up before. */
struct redis_call {
    struct task *task;           /* NULL: nobody waits */
    int left;                    /* replies that are still to come */
    int commands, at;            /* of a pipeline, and how many replies it has; 0: one command */
    struct redis_conn *conn;     /* NULL: the shared connection; else a reference */
    struct redis_script *script; /* NULL, or a reference */
};

struct redis_call *api_redis_call_new(struct task *task, int commands, struct redis_conn *conn);
void api_redis_call_reply(void *arg, redisReply *reply, enum rds_error err); /* a rds_cb */
/* Ends the primitive. */
int api_redis_call_wait(lua_State *L, struct redis_call *c);
int api_redis_push_error(lua_State *L, const char *err);

/* tg.redis.call and conn:call, tg.redis.pipeline and conn:pipeline; arguments from `first` on. */
int api_redis_command(lua_State *L, int first, const char *what, struct redis_conn *conn);
int api_redis_pipeline(lua_State *L, int first, const char *what, struct redis_conn *conn);

/* Each adds its functions to the table on top of the stack. */
void api_redis_open_script(lua_State *L);
void api_redis_open_conn(lua_State *L);
void api_redis_open_subscribe(lua_State *L);
void api_redis_open_key(lua_State *L);

#endif
