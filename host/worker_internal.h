/* A worker's parts. Private to worker*.c. */
#ifndef TOLLGATE_WORKER_INTERNAL_H
#define TOLLGATE_WORKER_INTERNAL_H

#include "control.h"
#include "gateway.h"
#include "zone.h"

struct worker {
    struct loop loop;
    struct gateway gw;
    struct control *control;
    struct zone *zone;
    struct zone_slot *slot;
    unsigned slot_number;
    uv_prepare_t turn;
    struct timer beat;
    uint64_t turns;
    volatile uint64_t interrupted; /* the turn in which SIGUSR1 came, + 1 */
    unsigned place, places, naddresses;
    uint32_t limit;              /* of connections */
    int *fds;                    /* naddresses * places */
    struct listener **listeners; /* likewise */
    struct timer room;           /* a load waits for an old generation's end */
    int waiting_fd;
    uint64_t waiting_number;
    uint64_t drain_ms;
    bool serving;
    volatile bool orphaned; /* the master is gone, and an alarm is set */
    int code;
};

/* Writes the slot. */
void worker_show(struct worker *w);
/* worker_accept.c: begins to serve; then, now and then, looks on which sockets it is to accept. */
void worker_serve(struct worker *w);
void worker_accept(struct worker *w);
/* worker_replica.c: gives the services what workers have in common; the master's answer to a plugin
 * that asked for the replica's metrics, whose descriptor it takes. */
void worker_join(struct worker *w);
void worker_metrics(struct worker *w, uint64_t id, int fd);
/* worker_command.c: asks a plugin what the master was asked, and answers. */
void worker_command(struct worker *w, uint64_t id, struct slice request);
/* worker_signal.c */
void worker_signals(struct worker *w);
void worker_signals_end(void); /* handlers do not look at the worker any more */

#endif
