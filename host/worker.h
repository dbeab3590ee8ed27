/* The process that serves: one loop with everything on it, from the configuration to the last connection. */
#ifndef TOLLGATE_WORKER_H
#define TOLLGATE_WORKER_H

/* Runs the gateway until SIGTERM or SIGINT; a second one ends it at once. Returns the exit code: 0; 1 where it
 * could not start (said on stderr); 70 where something was still open at the end. */
int worker_run(const char *config);

#endif
