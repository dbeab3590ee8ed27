/* See terminal.h. */
#include "terminal.h"

#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

static bool is_set(const char *name)
{
    const char *value = getenv(name);
    return value != NULL && value[0] != '\0';
}

/* LC_ALL before LC_CTYPE before LANG (POSIX, "Environment Variables", 8.2). */
static bool utf8(void)
{
    const char *name = is_set("LC_ALL") ? "LC_ALL" : is_set("LC_CTYPE") ? "LC_CTYPE" : "LANG";
    const char *value = is_set(name) ? getenv(name) : "";
    return strcasestr(value, "utf-8") != NULL || strcasestr(value, "utf8") != NULL;
}

static unsigned number(const char *name, unsigned otherwise)
{
    int n = is_set(name) ? atoi(getenv(name)) : 0;
    return n > 0 && n < 10000 ? (unsigned)n : otherwise;
}

void terminal_look(struct terminal *t, int fd, const char *color)
{
    struct winsize size = { 0 };
    const char *kind = getenv("TERM");
    bool dumb = kind == NULL || kind[0] == '\0' || strcmp(kind, "dumb") == 0;
    *t = (struct terminal){ .tty = isatty(fd), .utf8 = utf8() };
    bool sized = t->tty && ioctl(fd, TIOCGWINSZ, &size) == 0;
    t->width = sized && size.ws_col > 0 ? size.ws_col : number("COLUMNS", 80);
    t->height = sized && size.ws_row > 0 ? size.ws_row : number("LINES", 24);
    if (color != NULL && strcmp(color, "auto") != 0)
        t->color = strcmp(color, "always") == 0;
    else
        t->color = t->tty && !dumb && !is_set("NO_COLOR");
}
