/* The trial of a configuration in a process of its own, which the master throws away: whatever a
 * plugin does while it is loaded cannot harm those who serve. */
#ifndef TOLLGATE_LOAD_CHECK_H
#define TOLLGATE_LOAD_CHECK_H

#include "generation.h"

/* Loads a configuration, with a routing policy in place of the one that was taken last unless
 * policy.p is NULL, and runs every init and stop, over services of its own that are not given back:
 * the process is expected to end by _exit. NULL with faults. */
struct generation *load_check_try(const char *config, struct slice policy, struct buf *faults);
/* Writes the notes on its settings into the snapshot of a generation. */
void load_check_note(struct generation *g);

/* Arguments of the internal command: config, descriptor of a file for the snapshot, descriptor of a
 * pipe for faults, descriptor of a routing policy or "-". Makes the trial and writes what all of it
 * was made of. The last line on the pipe is "ok"; anything else is a fault. */
int load_check_main(int argc, char **argv);

#endif
