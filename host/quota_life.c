/* Beginning and end of a quota. Replies may still be under way at its end: it lives on, out of
 * sight, until the last of them has come or its connection has gone. */
#include "quota_internal.h"

#include <stdio.h>

#include "container.h"
#include "log.h"
#include "mem.h"

static void on_redis(struct rds_watch *w, bool usable)
{
    struct quota *q = CONTAINER(w, struct quota, watch);
    if (!usable)
        return;
    quota_resend(q);
    if (q->renewal_missed)
        quota_renew(q);
}

static const char *const scripts[] = { "admit", "settle", "heal" };

int quota_try(const char *dir, quota_read read, void *arg, char *path, size_t size)
{
    struct slice text;
    int err = 0;
    for (size_t i = 0; i < sizeof scripts / sizeof *scripts && err == 0; i++) {
        snprintf(path, size, "%s/%s.lua", dir, scripts[i]);
        err = read(arg, path, &text);
    }
    return err;
}

static int load_one(struct rds_script *s, const char *dir, const char *name, quota_read read,
                    void *arg)
{
    char path[4096];
    struct slice text;
    if (read == NULL)
        return rds_script_load(s, dir, name);
    snprintf(path, sizeof path, "%s/%s.lua", dir, name);
    int err = read(arg, path, &text);
    return err != 0 ? err : rds_script_set(s, name, text);
}

static int load_scripts(struct quota *q, const char *dir, quota_read read, void *arg)
{
    struct rds_script *const all[] = { &q->admit, &q->settle, &q->heal };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        int err = load_one(all[i], dir, scripts[i], read, arg);
        if (err != 0) {
            log_error("quota: %s/%s.lua: %s", dir, scripts[i], uv_strerror(err));
            return err;
        }
        rds_preload(q->rds, all[i]);
    }
    return 0;
}

static void destroy_list(struct quota_list *l)
{
    for (struct quota_entry *e; (e = quota_list_pop(l)) != NULL;)
        quota_entry_free(e);
}

static void destroy(struct quota *q)
{
    uint64_t lost = q->stats->lost - q->lost_before_free;
    if (lost > 0)
        log_error("quota: %llu settlements were under way at the end and are lost",
                  (unsigned long long)lost);
    struct quota_list rest = { q->open, NULL };
    for (struct quota_entry *e; (e = rest.first) != NULL;) {
        rest.first = e->next;
        quota_entry_free(e);
    }
    for (struct quota_entry *e; (e = q->pool) != NULL;) {
        q->pool = e->next;
        quota_entry_free(e);
    }
    for (struct quota_call *c; (c = q->call_pool) != NULL;) {
        q->call_pool = c->next;
        mem_free(c);
    }
    destroy_list(&q->at_once);
    destroy_list(&q->stuck);
    destroy_list(&q->kept);
    quota_keys_free(q);
    rds_script_deinit(&q->admit);
    rds_script_deinit(&q->settle);
    rds_script_deinit(&q->heal);
    buf_deinit(&q->args.names);
    mem_free(q);
}

void quota_hold(struct quota *q)
{
    q->pins++;
}

void quota_let_go(struct quota *q)
{
    if (--q->pins == 0 && q->freed)
        destroy(q);
}

static void stop(struct quota *q)
{
    q->freed = true;
    q->lost_before_free = q->stats->lost;
    rds_unwatch(q->rds, &q->watch);
    rds_forget(q->rds, &q->admit);
    rds_forget(q->rds, &q->settle);
    rds_forget(q->rds, &q->heal);
    loop_undefer(q->loop, &q->collect);
    timer_deinit(q->loop, &q->renew);
    timer_deinit(q->loop, &q->resend);
}

struct quota *quota_new(struct loop *l, struct rds *r, const char *script_dir, bool hash_tags)
{
    return quota_new_from(l, r, script_dir, hash_tags, NULL, NULL);
}

struct quota *quota_new_from(struct loop *l, struct rds *r, const char *script_dir, bool hash_tags,
                             quota_read read, void *arg)
{
    struct quota *q = mem_zalloc(sizeof *q);
    q->stats = &q->own;
    q->loop = l;
    q->rds = r;
    q->hash_tags = hash_tags;
    q->seed = (unsigned)uv_hrtime();
    q->renew_ms = QUOTA_RENEW_MS;
    q->heal_ms = QUOTA_HEAL_MS;
    q->resend_ms = QUOTA_RESEND_MIN_MS;
    q->kept_max = QUOTA_KEPT_MAX;
    q->dirty_last = &q->dirty;
    q->collect.run = quota_on_collect;
    q->renew.cb = quota_on_renew;
    q->resend.cb = quota_on_resend;
    q->watch.on_change = on_redis;
    quota_list_init(&q->at_once);
    quota_list_init(&q->stuck);
    quota_list_init(&q->kept);
    rds_watch(r, &q->watch);
    if (load_scripts(q, script_dir, read, arg) != 0) {
        stop(q);
        destroy(q);
        return NULL;
    }
    timer_set(l, &q->renew, q->renew_ms);
    return q;
}

static void tell_list(struct quota_list *l)
{
    for (struct quota_entry *e = l->first; e != NULL; e = e->next)
        quota_entry_unavailable(e);
}

void quota_free(struct quota *q)
{
    quota_hold(q);
    quota_on_collect(&q->collect); /* what this turn settled goes out still */
    stop(q);
    for (struct quota_call *c = q->calls; c != NULL; c = c->next) {
        timer_deinit(q->loop, &c->deadline);
        for (unsigned i = 0; i < c->n; i++)
            quota_entry_unavailable(c->entries[i]);
    }
    tell_list(&q->at_once);
    uint64_t unsettled = 0;
    for (struct quota_entry *e = q->open; e != NULL; e = e->next)
        unsettled++;
    if (unsettled > 0)
        log_error("quota: %llu grants were never settled", (unsigned long long)unsettled);
    if (q->stats->pending > 0)
        log_error("quota: %llu settlements were never delivered",
                  (unsigned long long)q->stats->pending);
    quota_let_go(q);
}
