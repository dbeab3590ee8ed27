/* tollgate usage KEYID: reads a key's counters from the gateway's Redis. The budget stands in the configuration and
 * in key records, which Redis does not know; here is what was spent. */
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "cli_args.h"
#include "generation.h"
#include "json.h"
#include "quota.h"
#include "rds.h"

enum { USAGE_MS = 3000 };

struct usage {
    struct loop loop;
    struct rds *rds;
    const char *key;
    int pending;
    bool failed;
    char why[256];
    long long spent, inflight;
    double tokens;   /* left in the bucket as of the last request; -1: not there, which is full */
};

static void answered(struct usage *u)
{
    if (--u->pending == 0)
        rds_free(u->rds);
}

static bool good(struct usage *u, const redisReply *r, enum rds_error err)
{
    if (err == RDS_OK && r->type != REDIS_REPLY_ERROR)
        return true;
    u->failed = true;
    if (u->why[0] == '\0')
        snprintf(u->why, sizeof u->why, "%s", err == RDS_OK ? r->str : rds_problem(u->rds));
    return false;
}

static void on_spent(void *arg, redisReply *r, enum rds_error err)
{
    struct usage *u = arg;
    if (good(u, r, err) && r->type == REDIS_REPLY_STRING)
        u->spent = strtoll(r->str, NULL, 10);
    answered(u);
}

static void on_inflight(void *arg, redisReply *r, enum rds_error err)
{
    struct usage *u = arg;
    if (good(u, r, err) && r->type == REDIS_REPLY_INTEGER)
        u->inflight = r->integer;
    answered(u);
}

static void on_tokens(void *arg, redisReply *r, enum rds_error err)
{
    struct usage *u = arg;
    if (good(u, r, err) && r->type == REDIS_REPLY_STRING)
        u->tokens = strtod(r->str, NULL);
    answered(u);
}

static void ask(struct usage *u, const char *command, const struct buf *key, const char *field, rds_cb cb)
{
    struct slice argv[3] = { slice_of(command), buf_slice(key), slice_of(field != NULL ? field : "") };
    u->pending++;
    rds_command(u->rds, field != NULL ? 3 : 2, argv, USAGE_MS, cb, u);
}

static void ask_all(struct usage *u, bool hash_tags)
{
    struct slice id = slice_of(u->key);
    struct buf name;
    buf_init(&name);
    quota_key_tokens(&name, id, loop_wall_ms(), hash_tags);
    ask(u, "GET", &name, NULL, on_spent);
    buf_clear(&name);
    quota_key_conc(&name, id, hash_tags);
    ask(u, "SCARD", &name, NULL, on_inflight);
    buf_clear(&name);
    quota_key_rps(&name, id, hash_tags);
    ask(u, "HGET", &name, "tokens", on_tokens);
    buf_deinit(&name);
}

static int report(const struct usage *u, bool json)
{
    if (u->failed) {
        fprintf(stderr, "tollgate usage: redis: %s\n", u->why);
        return 1;
    }
    if (json) {
        struct buf out;
        buf_init(&out);
        buf_add_text(&out, "{\"key\":");
        json_quote(&out, slice_of(u->key));
        buf_printf(&out, ",\"month_tokens\":%lld,\"in_flight\":%lld}\n", u->spent, u->inflight);
        fprintf(stdout, "%.*s", (int)out.n, out.n > 0 ? out.p : "");
        buf_deinit(&out);
        return 0;
    }
    printf("key              %s\ntokens, month    %lld (spent and reserved)\nin flight        %lld\n", u->key, u->spent, u->inflight);
    if (u->tokens >= 0)
        printf("bucket           %.2f requests left at the last request\n", u->tokens);
    else
        printf("bucket           full\n");
    return 0;
}

static const char *redis_config(const struct generation *g, struct rds_config *c)
{
    char url[PATH_MAX + 32], absolute[PATH_MAX];
    const char *text = g->settings.redis_url;
    if (text == NULL) {
        if (realpath(g->settings.run_dir, absolute) == NULL)
            return "the run directory does not exist: has the gateway been started?";
        snprintf(url, sizeof url, "unix://%s/redis.sock", absolute);
        text = url;
    }
    return rds_config_parse(slice_of(text), c);
}

int cli_usage(int argc, char **argv)
{
    struct cli_args a;
    struct usage u = { .tokens = -1 };
    struct services sv = { .loop = &u.loop };
    struct rds_config c;
    struct buf faults;
    if (cli_args_parse(&a, "usage", argc, argv, CLI_JSON, 1) != 0)
        return 2;
    if (a.nwords != 1) {
        fprintf(stderr, "tollgate usage: name the key: tollgate usage KEYID\n");
        return 2;
    }
    u.key = a.word[0];
    if (loop_init(&u.loop) != 0)
        return 1;
    buf_init(&faults);
    int code = 1;
    struct generation *g = generation_load(&sv, a.config, true, &faults);
    const char *wrong = g != NULL ? redis_config(g, &c) : NULL;
    if (g == NULL) {
        fprintf(stderr, "%.*s", (int)faults.n, faults.n > 0 ? faults.p : "");
    } else if (wrong != NULL) {
        fprintf(stderr, "tollgate usage: %s\n", wrong);
    } else {
        const char *why = NULL;
        c.resolve = sv.resolve = resolve_new(&u.loop, &why);
        u.rds = rds_new(&u.loop, &c);
        rds_start(u.rds);
        ask_all(&u, g->settings.redis_hash_tags);
        loop_run(&u.loop);
        code = report(&u, a.json);
    }
    if (g != NULL) {
        g->stopped = true;
        generation_release(g);
    }
    if (sv.resolve != NULL)
        resolve_free(sv.resolve);
    buf_deinit(&faults);
    loop_deinit(&u.loop);
    return code;
}
