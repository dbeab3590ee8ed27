/* tollgate: finds the command in the table and calls it. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"
#include "cli_help.h"
#include "cli_table.h"
#include "load_check.h"
#include "log_writer.h"
#include "worker.h"

/* For the gateway's own use, and the build's. */
static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
} own[] = {
    { "worker", worker_main },
    { "load-check", load_check_main },
    { "log-writer", log_writer_main },
    { "man", cli_man },
};

static bool asks_help(const char *word)
{
    return strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0;
}

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
    int used = 0;
    char *name = argc > 1 ? argv[1] : "";
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) {
        if (strcmp(own[i].name, name) == 0)
            return own[i].run(argc - 2, argv + 2);
    }
    if (asks_help(name))
        return cli_help(0, NULL);
    if (strcmp(name, "--version") == 0)
        return cli_version(argc - 2, argv + 2);
    const struct cli_command *c = cli_command_find(argc - 1, argv + 1, &used);
    if (c != NULL && c->nwords >= 0 && argc == used + 2 && asks_help(argv[used + 1]))
        return cli_help(used, argv + 1);
    if (c != NULL)
        return c->run(argc - 1 - used, argv + 1 + used);
    if (cli_about(name)) /* "key" alone */
        return 2;
    if (name[0] != '\0')
        fprintf(stderr, "tollgate: no command '%s'\n\n", name);
    cli_help_all(stderr);
    return 2;
}
