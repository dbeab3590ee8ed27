/* See cli.h: run, check and key. */
#include "cli.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli_args.h"
#include "control_client.h"
#include "generation.h"
#include "json.h"
#include "key_record.h"
#include "keystore.h"
#include "load_check.h"
#include "master.h"
#include "progress.h"

int cli_run(int argc, char **argv)
{
    struct cli_args a;
    if (cli_args_parse(&a, "run", argc, argv) != 0)
        return 2;
    return master_run(a.config);
}

/* --- check --- */

/* The keys that a running gateway would not take without a restart, a line each. */
static void add_restart(const char *config, struct generation *g, struct buf *keys)
{
    struct buf running, here;
    buf_init(&running);
    buf_init(&here);
    if (control_try(config, "restart-keys", &running) == 0) {
        load_check_note(g);
        plan_restart_lines(g->snapshot, &here);
        buf_add(&running, "", 1);
        buf_add(&here, "", 1);
        for (char *line = here.n > 0 ? strtok(here.p, "\n") : NULL; line != NULL;
             line = strtok(NULL, "\n")) {
            if (strstr(running.p, line) == NULL)
                buf_printf(keys, "%.*s\n", (int)strcspn(line, " "), line);
        }
    }
    buf_deinit(&running);
    buf_deinit(&here);
}

static void add_list(struct buf *out, const char *name, struct slice lines)
{
    const char *comma = "";
    buf_printf(out, ",\"%s\":[", name);
    while (lines.n > 0) {
        const char *end = memchr(lines.p, '\n', lines.n);
        size_t n = end != NULL ? (size_t)(end - lines.p) : lines.n;
        buf_add_text(out, comma);
        json_quote(out, (struct slice){ lines.p, n });
        comma = ",";
        n = n < lines.n ? n + 1 : n;
        lines = (struct slice){ lines.p + n, lines.n - n };
    }
    buf_add_text(out, "]");
}

static void print_fine(const struct cli_args *a, struct generation *g)
{
    struct buf restart, out;
    buf_init(&restart);
    buf_init(&out);
    add_restart(a->config, g, &restart);
    if (a->json) {
        buf_add_text(&out, "{\"config\":");
        json_quote(&out, slice_of(a->config));
        buf_printf(&out, ",\"routes\":%u", g->nroutes);
        add_list(&out, "warnings", buf_slice(&g->warnings));
        add_list(&out, "restart", buf_slice(&restart));
        printf("%.*s}\n", (int)out.n, out.p);
    } else {
        buf_add(&restart, "", 1);
        for (char *key = strtok(restart.p, "\n"); key != NULL; key = strtok(NULL, "\n"))
            printf("%s: needs a restart of the gateway that runs\n", key);
        printf("%s: %u routes, no faults\n", a->config, g->nroutes);
    }
    buf_deinit(&restart);
    buf_deinit(&out);
}

int cli_check(int argc, char **argv)
{
    struct cli_args a;
    struct buf faults, text;
    if (cli_args_parse(&a, "check", argc, argv) != 0)
        return 2;
    bool print = a.value[CLI_PRINT] != NULL;
    if (print && a.json)
        return cli_misused(&a, "--print is for people: it does not go with --json");
    buf_init(&faults);
    buf_init(&text);
    progress_begin("loading the configuration");
    struct generation *g = load_check_try(a.config, (struct slice){ NULL, 0 }, &faults);
    progress_end();
    if (faults.n > 0)
        cli_faults(&a, buf_slice(&faults));
    if (g != NULL && print) {
        generation_print(g, &text);
        printf("%.*s", (int)text.n, text.n > 0 ? text.p : "");
    } else if (g != NULL) {
        print_fine(&a, g);
    }
    if (g != NULL && g->warnings.n > 0 && !a.json)
        fprintf(stderr, "%.*s", (int)g->warnings.n, g->warnings.p);
    fflush(stdout);
    _exit(g != NULL ? 0 : 1); /* what the trial has open ends with the process */
}

/* --- key new --- */

/* A record's member is called as the option is, with _ for -. */
static void add_member(struct buf *record, const struct cli_own *own)
{
    buf_add_text(record, ",\"");
    for (const char *at = own->option->flag + 2; *at != '\0'; at++)
        buf_add(record, *at == '-' ? "_" : at, 1);
    buf_add_text(record, "\":");
    if (strcmp(own->option->value, "N") == 0)
        buf_add_text(record, own->value);
    else
        json_quote(record, slice_of(own->value));
}

/* Appends the record, its members in the order of the options, routes last. */
static void key_record(const struct cli_args *a, const char *id, const char *digest,
                       struct buf *line)
{
    const char *comma = "";
    buf_add_text(line, "{\"id\":");
    json_quote(line, slice_of(id));
    buf_printf(line, ",\"secret_sha256\":\"%s\"", digest);
    for (const struct cli_own *own = a->own; own < a->own + a->nown; own++) {
        if (strcmp(own->option->flag, "--id") != 0 && strcmp(own->option->flag, "--route") != 0)
            add_member(line, own);
    }
    for (const struct cli_own *own = a->own; own < a->own + a->nown; own++) {
        if (strcmp(own->option->flag, "--route") != 0)
            continue;
        buf_add_text(line, comma[0] == '\0' ? ",\"routes\":[" : comma);
        json_quote(line, slice_of(own->value));
        comma = ",";
    }
    buf_add_text(line, comma[0] == '\0' ? "}" : "]}");
}

/* 0, or the exit code where keys.jsonl would not take it. */
static int key_check(const struct cli_args *a, struct slice line)
{
    struct key_record r;
    struct arena arena;
    struct buf fault;
    int code = 0;
    arena_init(&arena);
    buf_init(&fault);
    if (key_record_parse(&r, &arena, line, &fault) != 0)
        code = cli_misused(a, "no such record: %.*s", (int)fault.n, fault.p);
    buf_deinit(&fault);
    arena_deinit(&arena);
    return code;
}

static void key_print(const struct cli_args *a, const char *secret, const struct buf *line)
{
    if (a->json) {
        printf("{\"secret\":\"%s\",\"record\":%.*s}\n", secret, (int)line->n, line->p);
        return;
    }
    fprintf(stderr, "The secret, shown only now:\n");
    printf("%s\n", secret);
    fflush(stdout);
    fprintf(stderr, "The record to add to keys.jsonl:\n");
    printf("%.*s\n", (int)line->n, line->p);
}

int cli_key(int argc, char **argv)
{
    char secret[KEY_SECRET_SIZE], digest[KEY_HEX_SIZE];
    struct cli_args a;
    struct buf line;
    const char *id = "";
    if (cli_args_parse(&a, "key new", argc, argv) != 0)
        return 2;
    for (int i = 0; i < a.nown; i++) {
        if (strcmp(a.own[i].option->flag, "--id") == 0)
            id = a.own[i].value;
    }
    if (id[0] == '\0')
        return cli_misused(&a, "--id ID is required, and not empty");
    if (keystore_secret_new(secret) != 0)
        return cli_failed(&a, "the system gives no random bytes");
    keystore_digest_hex(slice_of(secret), digest);
    buf_init(&line);
    key_record(&a, id, digest, &line);
    int code = key_check(&a, buf_slice(&line));
    if (code == 0)
        key_print(&a, secret, &line);
    buf_deinit(&line);
    return code;
}
