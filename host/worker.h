/* A process that serves, started by the master with its own image: it does what the master says
 * over a control channel, shows how it is in its slot of the zone, and ends when the master does.
 */
#ifndef TOLLGATE_WORKER_H
#define TOLLGATE_WORKER_H

enum {
    WORKER_REFUSED = 78,
    WORKER_LEAK = 70
}; /* exit codes: must not be started again; something was left open */

/* Arguments of the internal command: config, place, places, slot, control fd, zone fd, socket of
 * the private Redis or "-", connections that this worker may have, fd of the dictionary, fd of the
 * access log's pipe or -1, then the descriptors of the listening sockets (for each address, one a place). Returns the exit code. */
int worker_main(int argc, char **argv);

#endif
