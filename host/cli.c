/* See cli.h: run, check and key. */
#include "cli.h"

#include <stdio.h>
#include <stdlib.h>
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
    if (print && a.json) {
        fprintf(stderr, "tollgate check: --print is for people: it does not go with --json\n");
        return 2;
    }
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

struct key_option {
    const char *flag, *member;
    bool number;
};

static const struct key_option key_options[] = {
    { "--tenant", "tenant", false },
    { "--plan", "plan", false },
    { "--rps", "rps", true },
    { "--burst", "burst", true },
    { "--monthly-tokens", "monthly_tokens", true },
    { "--concurrency", "concurrency", true },
};

/* Why a key is refused; 2. */
static int key_fault(const char *what, const char *which)
{
    fprintf(stderr, "tollgate key new: %s %s\n", what, which);
    return 2;
}

static const struct key_option *key_option_of(const char *flag)
{
    for (size_t i = 0; i < sizeof key_options / sizeof *key_options; i++) {
        if (strcmp(key_options[i].flag, flag) == 0)
            return &key_options[i];
    }
    return NULL;
}

/* Adds the members that the options give to `record`, in their order; sets *id and *json. 0, or
 * the exit code. */
static int key_members(int argc, char **argv, const char **id, bool *json, struct buf *record,
                       struct buf *routes)
{
    for (int i = 0; i < argc; i += 2) {
        if (strcmp(argv[i], "--json") == 0) {
            *json = true;
            i--;
            continue;
        }
        const struct key_option *o = key_option_of(argv[i]);
        if (i + 1 >= argc)
            return key_fault("a value is missing behind", argv[i]);
        struct slice value = slice_of(argv[i + 1]);
        if (strcmp(argv[i], "--id") == 0) {
            *id = argv[i + 1];
        } else if (strcmp(argv[i], "--route") == 0) {
            buf_add_text(routes, routes->n > 0 ? "," : "");
            json_quote(routes, value);
        } else if (o == NULL) {
            return key_fault("unknown option", argv[i]);
        } else if (o->number) {
            char *rest;
            strtod(value.p, &rest);
            if (*rest != '\0' || rest == value.p)
                return key_fault("not a number:", argv[i + 1]);
            buf_printf(record, ",\"%s\":%s", o->member, value.p);
        } else {
            buf_printf(record, ",\"%s\":", o->member);
            json_quote(record, value);
        }
    }
    return 0;
}

/* Appends the record to `line`. 0, or the exit code where keys.jsonl would not take it. */
static int key_record(const char *id, const char *digest, const struct buf *members,
                      const struct buf *routes, struct buf *line)
{
    struct key_record r;
    struct arena arena;
    struct buf fault;
    buf_add_text(line, "{\"id\":");
    json_quote(line, slice_of(id));
    buf_printf(line, ",\"secret_sha256\":\"%s\"", digest);
    buf_add(line, members->p, members->n);
    if (routes->n > 0)
        buf_printf(line, ",\"routes\":[%.*s]", (int)routes->n, routes->p);
    buf_add_text(line, "}");
    arena_init(&arena);
    buf_init(&fault);
    int code = 0;
    if (key_record_parse(&r, &arena, buf_slice(line), &fault) != 0) {
        buf_add(&fault, "", 1);
        code = key_fault("no such record:", fault.p);
    }
    buf_deinit(&fault);
    arena_deinit(&arena);
    return code;
}

static int key_print(const char *id, bool json, const struct buf *members, const struct buf *routes)
{
    char secret[KEY_SECRET_SIZE], digest[KEY_HEX_SIZE];
    struct buf line;
    if (keystore_secret_new(secret) != 0) {
        fprintf(stderr, "tollgate key new: the system gives no random bytes\n");
        return 1;
    }
    keystore_digest_hex(slice_of(secret), digest);
    buf_init(&line);
    int code = key_record(id, digest, members, routes, &line);
    if (code == 0 && json) {
        printf("{\"secret\":\"%s\",\"record\":%.*s}\n", secret, (int)line.n, line.p);
    } else if (code == 0) {
        fprintf(stderr, "The secret, shown only now:\n");
        printf("%s\n", secret);
        fflush(stdout);
        fprintf(stderr, "The record to add to keys.jsonl:\n");
        printf("%.*s\n", (int)line.n, line.p);
    }
    buf_deinit(&line);
    return code;
}

int cli_key(int argc, char **argv)
{
    const char *id = NULL;
    bool json = false;
    struct buf members, routes;
    buf_init(&members);
    buf_init(&routes);
    int code = key_members(argc, argv, &id, &json, &members, &routes);
    if (code == 0 && (id == NULL || id[0] == '\0'))
        code = key_fault("--id ID is required, and", "not empty");
    if (code == 0)
        code = key_print(id, json, &members, &routes);
    buf_deinit(&members);
    buf_deinit(&routes);
    return code;
}
