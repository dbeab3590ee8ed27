/* What Lua sees of the host: the module "tollgate" and ctx. Each api_*.c adds one table or one kind
 * of object; what waits goes through task.h. */
#ifndef TOLLGATE_API_H
#define TOLLGATE_API_H

#include <lauxlib.h>
#include <lua.h>

#include "exchange.h"
#include "generation.h"

/* Makes package.loaded.tollgate in a generation's state. */
void api_open(struct generation *g);
struct generation *api_generation(lua_State *L);

/* Pushes the exchange's ctx, made at its first use. */
void api_ctx_push(lua_State *L, struct exchange *x);
/* Lua may still hold ctx; from now on its use raises. */
void api_ctx_release(struct exchange *x);
/* The exchange of a ctx (or of its request or response) at idx; raises where it is none or has
 * ended. */
struct exchange *api_exchange(lua_State *L, int idx);
/* id and tenant of ctx.consumer, valid until Lua runs again; p == NULL where there is none. */
struct api_consumer {
    struct slice id, tenant;
};
struct api_consumer api_consumer(struct exchange *x);

/* Sets header fields from a table name → string, number, or list of them at idx; raises on what no
 * header may hold. Fields that frame a message or belong to a connection are refused. */
void api_headers_from_table(lua_State *L, int idx, struct headers *h);
void api_headers_push(lua_State *L, const struct headers *h, struct slice name);
void api_headers_assign(lua_State *L, struct headers *h, struct slice name, int value_idx);

/* Each adds its functions to the module table on top of the stack. */
void api_open_ctx(lua_State *L);
void api_open_timer(lua_State *L);
void api_open_routing(lua_State *L);
void api_open_quota(lua_State *L);
void api_open_llm(lua_State *L);
void api_open_keys(lua_State *L);
void api_open_redis(lua_State *L);
void api_open_metrics(lua_State *L);
void api_open_json(lua_State *L);
void api_open_body(lua_State *L);
void api_open_http(lua_State *L);
void api_open_shared(lua_State *L);
void api_open_crypto(lua_State *L);
void api_open_sse(lua_State *L);
void api_open_condition(lua_State *L);

/* The condition at idx, as long as Lua holds it; raises where it is none. */
void *api_condition_check(lua_State *L, int idx);
/* Lets all go on that wait for it; they do in a later turn. */
void api_condition_notify(void *condition);

/* package.loaded["tollgate.process"]; for exec and test only. */
void api_open_process(lua_State *L);

/* A table as JSON text appended to out; raises on what JSON cannot hold. */
void api_json_encode(lua_State *L, int idx, struct buf *out);

/* tg.metrics.read, and the master's answer to what it asked. */
int api_metrics_read(lua_State *L);
void api_metrics_answer(struct services *sv, uint64_t id, struct slice text);

/* True while a timer of tg.timer.after is set or runs. */
bool api_timers_pending(const struct generation *g);
/* True while a lingering timer of tg.timer.after holds the generation; gives those up. */
bool api_timers_linger(const struct generation *g);
void api_timers_give_up(struct generation *g);
/* Ends a generation's timers, but for those that linger. */
void api_timers_stop(struct generation *g);
/* Ends these too. */
void api_timers_end(struct generation *g);
/* Ends a generation's subscriptions. */
void api_redis_subscriptions_stop(struct generation *g);
/* New connections get a generation's scripts ahead, or no longer do. */
void api_redis_scripts_start(struct generation *g);
void api_redis_scripts_stop(struct generation *g);

#endif
