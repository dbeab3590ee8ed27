/* tollgate: finds the command and calls it. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"
#include "load_check.h"
#include "log_writer.h"
#include "worker.h"

static const char help[] =
    "tollgate, a gateway that runs Lua plugins\n"
    "\n"
    "  tollgate run [-c gateway.lua]             serves until SIGTERM or SIGINT\n"
    "  tollgate reload [-c gateway.lua]          makes the running gateway load its files again; "
    "tells what is wrong\n"
    "  tollgate upgrade [-c gateway.lua]         lets the program that is installed now take over "
    "from the running one\n"
    "  tollgate status [-c gateway.lua] [--json] workers, generation, files and the last reload of "
    "the running gateway\n"
    "  tollgate breaker [-c gateway.lua] [open|close|auto PROVIDER:MODEL] [--json]\n"
    "                                            circuit breakers and why they are open; keeps one "
    "open or closed until auto\n"
    "  tollgate plugin [-c gateway.lua] NAME [words] [--json]\n"
    "                                            asks a plugin of the running gateway that takes "
    "commands\n"
    "  tollgate check [-c gateway.lua] [--print] tells every fault of a configuration, with its "
    "place;\n"
    "                                            --print shows the effective one, secrets masked\n"
    "  tollgate publish [-c gateway.lua] [--rollback]\n"
    "                                            checks the configuration and raises the routing "
    "version that replicas follow;\n"
    "                                            --rollback publishes the policy before "
    "(routing.source = \"redis\")\n"
    "  tollgate usage [-c gateway.lua] [KEYID] [--json]\n"
    "                                            what a key, or all, used of the month's budget\n"
    "  tollgate key new --id ID [options]        makes a secret, shown once, and the record to add "
    "to keys.jsonl\n"
    "      --tenant T  --plan P  --rps N  --burst N  --monthly-tokens N  --concurrency N  --route "
    "NAME (repeatable)\n"
    "  tollgate exec [--redis URL] FILE [args]   runs a Lua file with the plugins' primitives at "
    "hand\n"
    "  tollgate test [--redis URL] [args]        runs busted likewise; args are busted's own\n"
    "  tollgate new plugin NAME                  writes plugins/NAME.lua and spec/NAME_spec.lua to "
    "begin with\n"
    "  tollgate version\n"
    "  tollgate help\n"
    "\n"
    "The configuration is gateway.lua in the current folder unless -c names another.\n"
    "Exit codes: 0 fine; 1 it failed, and said why; 2 the command line makes no sense; 70 a "
    "defect: something was left\n"
    "open at the end of run.\n";

static int cli_version(int argc, char **argv)
{
    (void)argc, (void)argv;
    printf("tollgate %s\n", TOLLGATE_VERSION);
    return 0;
}

static int cli_help(int argc, char **argv)
{
    (void)argc, (void)argv;
    fputs(help, stdout);
    return 0;
}

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
} commands[] = {
    { "run", cli_run },
    { "reload", cli_reload },
    { "status", cli_status },
    { "upgrade", cli_upgrade },
    { "breaker", cli_breaker },
    { "plugin", cli_plugin },
    { "check", cli_check },
    { "publish", cli_publish },
    { "usage", cli_usage },
    { "key", cli_key },
    { "exec", cli_exec },
    { "test", cli_test },
    { "new", cli_new },
    { "version", cli_version },
    { "--version", cli_version },
    { "help", cli_help },
    { "--help", cli_help },
    { "-h", cli_help },
    { "worker", worker_main },
    { "load-check", load_check_main }, /* for the gateway's own use */
    { "log-writer", log_writer_main },
};

/* A file that is opened later must not take the place of a standard stream that was closed: logs
 * would be written into it. */
static void open_standard_streams(void)
{
    int fd;
    do
        fd = open("/dev/null", O_RDWR);
    while (fd >= 0 && fd <= STDERR_FILENO);
    close(fd);
}

int main(int argc, char **argv)
{
    open_standard_streams();
    const char *name = argc > 1 ? argv[1] : "";
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        if (strcmp(commands[i].name, name) == 0)
            return commands[i].run(argc - 2, argv + 2);
    }
    if (name[0] != '\0')
        fprintf(stderr, "tollgate: no command '%s'\n\n", name);
    fputs(help, stderr);
    return 2;
}
