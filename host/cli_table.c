/* See cli_table.h. */
#include "cli_table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"

#define CONFIG                                                                                     \
    {                                                                                              \
        CLI_CONFIG, "-c", "FILE", "the configuration (gateway.lua)"                                \
    }
#define JSON                                                                                       \
    {                                                                                              \
        CLI_JSON, "--json", NULL, "for programs: JSON on stdout, {\"error\": ...} on stderr"       \
    }
#define COLOR                                                                                      \
    {                                                                                              \
        CLI_COLOR, "--color", "auto|always|never", "colours; auto: on a terminal without NO_COLOR" \
    }
#define REDIS                                                                                      \
    {                                                                                              \
        CLI_REDIS, "--redis", "URL", "the Redis of tg.redis ($TOLLGATE_REDIS)"                     \
    }

const struct cli_command cli_commands[] = {
    { "run",
      NULL,
      0,
      "serves until SIGTERM or SIGINT",
      "SIGTERM and SIGINT drain: no new connections, answers under way end; a second one stops at "
      "once. SIGHUP reloads, SIGUSR1 opens the access log's file anew, SIGUSR2 upgrades. The "
      "configuration is checked first, and nothing serves where it has a fault.",
      { CONFIG },
      cli_run,
      NULL },
    { "check",
      NULL,
      0,
      "tells every fault of a configuration, with its place",
      "Loads the configuration, its plugins and keys as `run` does and starts nothing. Where a "
      "gateway runs with it, keys whose change needs a restart are named.",
      { CONFIG,
        { CLI_PRINT, "--print", NULL, "shows the effective configuration, secrets masked" },
        JSON },
      cli_check,
      "{\"config\", \"routes\": how many, \"warnings\": [text], \"restart\": [keys that the "
      "running gateway takes only by a restart]}" },
    { "status",
      NULL,
      0,
      "workers, generation, targets and the last reload of the running gateway",
      NULL,
      { CONFIG, JSON, COLOR },
      cli_status,
      "what /status of the admin listener has" },
    { "top",
      NULL,
      0,
      "what the running gateway does right now: routes, targets, tokens, workers",
      "On a terminal it is drawn anew each interval. q ends it; tab and the arrows to the sides "
      "choose the column to sort by, r turns the order round, 1 to 4 show routes, targets, models "
      "or workers alone, 0 all of them; the other arrows scroll. Elsewhere, and where TERM is "
      "dumb, tables follow one another. Times are those of one interval.",
      { CONFIG,
        { CLI_INTERVAL, "--interval", "SECONDS", "between two looks: 0.1 to 3600 (1)" },
        { CLI_ONCE, "--once", NULL, "prints the tables once, over one interval" },
        JSON,
        COLOR },
      cli_top,
      "one object, over one interval of so many \"seconds\": started, restarted, ready, "
      "generation, in_flight, connections; requests, errors, refused, client_gone, lost, tokens, "
      "quota and redis as counts, which are {\"total\", \"rate\"}, a second; duration, of redis "
      "too, as {\"p50\", \"p95\"} in seconds; restarts by reason, reloads, reload_failures; and "
      "the lists routes, targets, models and workers; null is not known" },
    { "usage",
      "[KEYID]",
      1,
      "what a key, or all, used of the month's budget",
      "Reads the gateway's Redis; a gateway need not run.",
      { CONFIG, JSON, COLOR },
      cli_usage,
      "a line a key: {\"key\", \"disabled\", \"month\", \"month_ends\", \"charged\", \"spent\", "
      "\"reserved\", \"in_flight\", \"limits\": [{\"routes\", \"budget\", \"share\", "
      "\"concurrency\"}]}; null is unknown, or no limit" },
    { "breaker",
      "[open|close|auto PROVIDER:MODEL]",
      2,
      "circuit breakers and why they are open; keeps one open or closed until auto",
      NULL,
      { CONFIG, JSON },
      cli_breaker,
      "what the plugin says" },
    { "plugin",
      "NAME [WORDS...]",
      8,
      "asks a plugin of the running gateway that takes commands",
      NULL,
      { CONFIG, JSON },
      cli_plugin,
      "what the plugin says" },
    { "reload",
      NULL,
      0,
      "makes the running gateway load its files again; tells what is wrong",
      "All workers take what is new, or none does, and what ran goes on.",
      { CONFIG, JSON },
      cli_reload,
      "{\"message\": text}" },
    { "upgrade",
      NULL,
      0,
      "lets the program that is installed now take over from the running one",
      "Same pid, sockets and Redis; workers are replaced one at a time, and no connection is "
      "refused.",
      { CONFIG, JSON },
      cli_upgrade,
      "{\"message\": text}" },
    { "publish",
      NULL,
      0,
      "checks the configuration and raises the routing version that replicas follow",
      NULL,
      { CONFIG,
        { CLI_ROLLBACK, "--rollback", NULL,
          "publishes the policy before (routing.source = \"redis\")" },
        JSON },
      cli_publish,
      "{\"version\": number}, after --rollback with \"policy_of\": the version whose policy it "
      "is" },
    { "key new",
      NULL,
      0,
      "makes a secret, shown once, and the record to add to keys.jsonl",
      NULL,
      { { CLI_OWN, "--id", "ID", "of the key; required" },
        { CLI_OWN, "--tenant", "T", "whom the key belongs to" },
        { CLI_OWN, "--plan", "P", "names windows of ratelimit" },
        { CLI_OWN, "--rps", "N", "requests a second" },
        { CLI_OWN, "--burst", "N", "requests at once" },
        { CLI_OWN, "--monthly-tokens", "N", "tokens a calendar month (UTC)" },
        { CLI_OWN, "--concurrency", "N", "requests in flight" },
        { CLI_OWN, "--route", "NAME", "that the key may use; repeatable" },
        JSON },
      cli_key,
      "{\"secret\": text, \"record\": the record}" },
    { "exec",
      "FILE [ARGUMENTS...]",
      -1,
      "runs a Lua file with the plugins' primitives at hand",
      NULL,
      { REDIS },
      cli_exec,
      NULL },
    { "test",
      "[ARGUMENTS...]",
      -1,
      "runs busted likewise; the arguments are busted's own",
      NULL,
      { REDIS },
      cli_test,
      NULL },
    { "new plugin",
      "NAME",
      1,
      "writes plugins/NAME.lua and spec/NAME_spec.lua to begin with",
      NULL,
      { JSON },
      cli_new,
      "{\"wrote\": [paths]}" },
    { "completion",
      "bash|zsh|fish",
      1,
      "prints a script that completes commands in a shell",
      "bash: source <(tollgate completion bash). zsh: tollgate completion zsh > a file _tollgate "
      "in "
      "$fpath. fish: tollgate completion fish | source.",
      { { 0 } },
      cli_completion,
      NULL },
    { "version",
      NULL,
      0,
      "prints the version",
      NULL,
      { JSON },
      cli_version,
      "{\"version\": text}" },
    { "help",
      "[COMMAND]",
      2,
      "prints this, or what there is to know of a command",
      NULL,
      { { 0 } },
      cli_help,
      NULL },
    { NULL, NULL, 0, NULL, NULL, { { 0 } }, NULL, NULL },
};

/* How many words of argv a name takes; 0 where they are not it. */
static int matches(const char *name, int argc, char **argv)
{
    size_t first = strcspn(name, " ");
    if (argc < 1 || strncmp(argv[0], name, first) != 0 || argv[0][first] != '\0')
        return 0;
    if (name[first] == '\0')
        return 1;
    return argc > 1 && strcmp(argv[1], name + first + 1) == 0 ? 2 : 0;
}

const struct cli_command *cli_command_find(int argc, char **argv, int *used)
{
    for (const struct cli_command *c = cli_commands; c->name != NULL; c++) {
        *used = matches(c->name, argc, argv);
        if (*used > 0)
            return c;
    }
    return NULL;
}

const struct cli_command *cli_command_named(const char *name)
{
    const struct cli_command *c = cli_commands;
    while (strcmp(c->name, name) != 0)
        c++;
    return c;
}

void cli_synopsis(const struct cli_command *c, char *out, size_t size)
{
    size_t n = (size_t)snprintf(out, size, "tollgate %s", c->name);
    for (const struct cli_option *o = c->options; o->flag != NULL && n < size; o++)
        n += (size_t)snprintf(out + n, size - n, o->value != NULL ? " [%s %s]" : " [%s]", o->flag,
                              o->value);
    if (c->words != NULL && n < size)
        snprintf(out + n, size - n, " %s", c->words);
}
