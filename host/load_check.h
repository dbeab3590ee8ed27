/* The trial of a configuration in a process of its own, which the master throws away: whatever a plugin does while it is loaded cannot
 * harm those who serve. */
#ifndef TOLLGATE_LOAD_CHECK_H
#define TOLLGATE_LOAD_CHECK_H

/* Arguments of the internal command: config, descriptor of a file for the snapshot, descriptor of a pipe for faults. Loads the
 * configuration, runs every init and stop, and writes what all of it was made of. The last line on the pipe is "ok"; anything else is a
 * fault. */
int load_check_main(int argc, char **argv);

#endif
