/* What a command's output goes to: whether it is a terminal, what that can show, and how large it
 * is. */
#ifndef TOLLGATE_TERMINAL_H
#define TOLLGATE_TERMINAL_H

#include <stdbool.h>

struct terminal {
    bool tty;
    bool color; /* as --color says; auto: a terminal that is not dumb, and NO_COLOR is not set
                   (no-color.org) */
    bool utf8;  /* the locale's encoding */
    unsigned width, height; /* columns and lines; 80 and 24 where nobody knows */
};

/* `color` is "auto" (or NULL), "always" or "never". */
void terminal_look(struct terminal *t, int fd, const char *color);

#endif
