/* Asking a running gateway, from another process. Its Unix socket is in its run directory, which
 * the configuration names; that may be broken at the moment (reload is to say how), so the gateway
 * also leaves a link, named after the configuration's path, in $XDG_RUNTIME_DIR or /tmp. */
#ifndef TOLLGATE_CONTROL_CLIENT_H
#define TOLLGATE_CONTROL_CLIENT_H

#include <stddef.h>

#include "buf.h"

/* Where the link for a configuration is. False where the file does not exist. */
bool control_link(const char *config, char *out, size_t size);
/* Sends a line and appends the answer. 0; 1 where it failed, with what is to be told. */
int control_ask(const char *config, const char *line, struct buf *answer);
/* The same where the gateway is known to run; -1 where it is not. */
int control_try(const char *config, const char *line, struct buf *answer);

/* The same for who has to go on meanwhile: a descriptor that does not block, to be read to its end;
 * -1 where nobody answers. */
int control_begin(const char *config, const char *line);
/* Takes the first line off what was read. 0, or 1 where it failed. */
int control_verdict(struct buf *answer);

#endif
