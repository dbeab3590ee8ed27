/* The connection of rds: handshake, backoff, and who hears of it. The handshake is one pipeline
 * that ends with PING, which Redis refuses while it loads its data or has lost its master: only its
 * PONG makes the connection usable. */
#include "rds_internal.h"

#include <stdarg.h>
#include <stdio.h>

#include "container.h"
#include "log.h"

/* --- who hears of it --- */

static const char *where(const struct rds *r, char *out, size_t size)
{
    if (r->config.path[0] != '\0')
        snprintf(out, size, "unix:%s, database %d", r->config.path, r->config.database);
    else
        snprintf(out, size, "%s:%d, database %d", r->config.host, r->config.port,
                 r->config.database);
    return out;
}

void rds_tell_state(struct rds *r)
{
    char text[400];
    bool usable = r->phase == PHASE_READY && r->overdue == 0;
    if (r->freed || (r->said && r->usable == usable))
        return;
    bool changed = r->usable != usable;
    r->said = true;
    r->usable = usable;
    if (usable)
        r->reached = true;
    if (r->config.bare)
        log_debug("redis: a connection of its own is %susable", usable ? "" : "not ");
    else if (usable)
        log_info("redis: usable (%s)", where(r, text, sizeof text));
    else
        log_warn("redis: not usable (%s): %s", where(r, text, sizeof text), r->problem);
    if (!changed)
        return;
    for (struct rds_watch *w = r->watches, *next; w != NULL && !r->freed; w = next) {
        next = w->next;
        w->on_change(w, usable);
    }
}

void rds_watch(struct rds *r, struct rds_watch *w)
{
    w->next = r->watches;
    r->watches = w;
}

void rds_unwatch(struct rds *r, struct rds_watch *w)
{
    for (struct rds_watch **at = &r->watches; *at != NULL; at = &(*at)->next) {
        if (*at == w) {
            *at = w->next;
            return;
        }
    }
}

enum rds_state rds_state(const struct rds *r)
{
    if (r->phase == PHASE_READY)
        return r->overdue > 0 ? RDS_HUNG : RDS_READY;
    return r->phase == PHASE_BACKOFF ? RDS_BACKOFF : RDS_CONNECTING;
}

/* --- down and up again --- */

void rds_disconnect(struct rds *r)
{
    rds_forget_dial(r);
    if (r->stream != NULL)
        stream_close(r->stream);
    if (r->reader != NULL)
        redisReaderFree(r->reader);
    r->stream = NULL;
    r->reader = NULL;
    r->phase = PHASE_IDLE;
    r->generation++;
    timer_stop(&r->clock);
    rds_fail_all(r);
}

/* Doubles from the minimum, with half of it at random, so that many gateways do not come back at
 * once. */
static uint64_t backoff_ms(struct rds *r)
{
    unsigned shift = r->attempts < 16 ? r->attempts : 16;
    uint64_t ms = r->config.backoff_min_ms << shift;
    uint32_t random = 0;
    if (ms > r->config.backoff_max_ms)
        ms = r->config.backoff_max_ms;
    r->attempts++;
    uv_random(NULL, NULL, &random, sizeof random, 0, NULL);
    return ms - ms / 2 + random % (ms / 2 + 1);
}

void rds_drop(struct rds *r, const char *format, ...)
{
    va_list ap;
    if (r->freed)
        return;
    va_start(ap, format);
    vsnprintf(r->problem, sizeof r->problem, format, ap);
    va_end(ap);
    log_debug("redis: connection dropped: %s", r->problem);
    if (r->phase == PHASE_READY && loop_now(r->loop) - r->ready_at > r->config.backoff_max_ms)
        r->attempts = 0;
    rds_disconnect(r);
    if (!r->config.once || !r->reached) {
        r->phase = PHASE_BACKOFF;
        timer_set(r->loop, &r->clock, backoff_ms(r));
    }
    rds_tell_state(r);
}

void rds_on_clock(struct timer *t)
{
    struct rds *r = CONTAINER(t, struct rds, clock);
    if (r->phase == PHASE_BACKOFF)
        rds_dial(r);
    else if (r->phase == PHASE_READY)
        rds_drop(r, "no reply for too long");
    else
        rds_drop(r, "no answer to the greeting");
}

/* --- handshake --- */

static bool is_fine(struct rds *r, const char *what, const redisReply *reply)
{
    if (reply->type != REDIS_REPLY_ERROR)
        return true;
    /* Where Redis does not know AUTH it repeats what came with it. */
    const char *args = strstr(reply->str, ", with args");
    size_t n = strcspn(reply->str, "\r\n");
    if (args != NULL && (size_t)(args - reply->str) < n)
        n = (size_t)(args - reply->str);
    rds_drop(r, "%s: %.*s", what, (int)n, reply->str);
    return false;
}

static void on_auth(void *arg, redisReply *reply, enum rds_error err)
{
    (void)err;
    is_fine(arg, "AUTH", reply);
}

static void on_select(void *arg, redisReply *reply, enum rds_error err)
{
    (void)err;
    is_fine(arg, "SELECT", reply);
}

static void on_policy(void *arg, redisReply *reply, enum rds_error err)
{
    struct rds *r = arg;
    (void)err;
    r->policy[0] = '\0';
    if (reply->type == REDIS_REPLY_ARRAY && reply->elements >= 2 &&
        reply->element[1]->type == REDIS_REPLY_STRING) {
        snprintf(r->policy, sizeof r->policy, "%s", reply->element[1]->str);
        return;
    }
    if (!r->policy_warned)
        log_warn("redis: maxmemory-policy cannot be read (%s); it must be noeviction",
                 reply->type == REDIS_REPLY_ERROR ? reply->str : "empty answer");
    r->policy_warned = true;
}

/* A replica refuses writes only once they come; better to know before anybody is let in. */
static void on_role(void *arg, redisReply *reply, enum rds_error err)
{
    (void)err;
    if (reply->type == REDIS_REPLY_ARRAY && reply->elements > 0 &&
        reply->element[0]->type == REDIS_REPLY_STRING &&
        strcmp(reply->element[0]->str, "slave") == 0)
        rds_drop(arg, "it is a replica");
}

static void on_preloaded(void *arg, redisReply *reply, enum rds_error err)
{
    (void)arg, (void)err;
    if (reply->type == REDIS_REPLY_ERROR) /* not fatal: the first call sends the script itself */
        log_debug("redis: SCRIPT LOAD: %s", reply->str);
}

static void on_pong(void *arg, redisReply *reply, enum rds_error err)
{
    struct rds *r = arg;
    (void)err;
    if (!is_fine(r, "PING", reply))
        return;
    timer_stop(&r->clock);
    r->phase = PHASE_READY;
    r->ready_at = loop_now(r->loop);
    r->problem[0] = '\0';
    rds_send_waiting(r);
    rds_tell_state(r);
}

static void greet(struct rds *r)
{
    char database[16];
    const struct slice policy[] = { SLICE("CONFIG"), SLICE("GET"), SLICE("maxmemory-policy") };
    struct slice argv[3] = { SLICE("AUTH"), slice_of(r->config.user),
                             slice_of(r->config.password) };
    if (argv[1].n == 0)
        argv[1] = argv[2];
    if (argv[2].n > 0)
        rds_send_handshake(r, r->config.user[0] != '\0' ? 3 : 2, argv, on_auth);
    snprintf(database, sizeof database, "%d", r->config.database);
    argv[0] = SLICE("SELECT");
    argv[1] = slice_of(database);
    if (r->config.database != 0)
        rds_send_handshake(r, 2, argv, on_select);
    if (!r->config.bare)
        rds_send_handshake(r, 3, policy, on_policy);
    argv[0] = SLICE("ROLE");
    rds_send_handshake(r, 1, argv, on_role);
    argv[0] = SLICE("SCRIPT");
    argv[1] = SLICE("LOAD");
    for (unsigned i = 0; i < r->npreloads; i++) {
        argv[2] = r->preloads[i]->body;
        rds_send_handshake(r, 3, argv, on_preloaded);
    }
    argv[0] = SLICE("PING");
    rds_send_handshake(r, 1, argv, on_pong);
}

/* --- the stream --- */

static void on_read(void *arg, const char *bytes, size_t n)
{
    rds_feed(arg, bytes, n);
}

static void on_end(void *arg, int err)
{
    struct rds *r = arg;
    const struct tls_fault *f = stream_fault(r->stream);
    rds_drop(r, "connection lost: %s",
             err == 0    ? "closed by Redis"
             : f != NULL ? f->text
                         : uv_strerror(err));
}

static const struct stream_events events = { on_read, on_end, NULL };

/* A peer that announces an array of billions must not make us allocate it. */
#if HIREDIS_MAJOR < 1
typedef int element_count;
#else
typedef size_t element_count;
#endif

static void *(*create_array)(const redisReadTask *task, element_count elements);

static void *create_bounded_array(const redisReadTask *task, element_count elements)
{
    return (long long)elements > RDS_ELEMENTS_MAX ? NULL : create_array(task, elements);
}

static redisReader *reader_new(struct rds *r)
{
    redisReader *reader = redisReaderCreate();
    create_array = reader->fn->createArray;
    r->reader_fn = *reader->fn;
    r->reader_fn.createArray = create_bounded_array;
    reader->fn = &r->reader_fn;
    return reader;
}

void rds_on_connect(struct rds *r)
{
    r->phase = PHASE_HANDSHAKE;
    r->reader = reader_new(r);
    stream_start(r->stream, &events, r);
    greet(r);
}

void rds_start(struct rds *r)
{
    if (r->phase == PHASE_IDLE && !r->freed)
        rds_dial(r);
}
