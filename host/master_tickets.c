/* See master.h: keys of TLS session tickets. They are in the zone, so that a client that one worker
 * has served resumes with any other, and a worker that starts anew takes what the one before gave.
 * Each makes tickets for timeouts.ticket_keys and takes them for as long again; none outlives the
 * gateway, so what was recorded of past connections cannot be read later. */
#include "container.h"
#include "log.h"
#include "master.h"
#include "tls_tickets.h"

enum { AGAIN_MS = 1000 };

static void rotate(struct master *m)
{
    if (ticket_ring_rotate(zone_tickets(m->zone)) == 0) {
        m->tickets_made = loop_now(&m->loop);
        timer_set(&m->loop, &m->tickets, m->plan->ticket_keys_ms);
        return;
    }
    log_error("no random bytes for the keys of session tickets");
    timer_set(&m->loop, &m->tickets, AGAIN_MS);
}

static void on_due(struct timer *t)
{
    rotate(CONTAINER(t, struct master, tickets));
}

void master_tickets_start(struct master *m)
{
    uint64_t now = loop_now(&m->loop);
    if (m->tickets_made == 0) /* what is there was made by the program before us */
        m->tickets_made = now;
    uint64_t due = m->tickets_made + m->plan->ticket_keys_ms;
    m->tickets.cb = on_due;
    if (zone_tickets(m->zone)->newest == 0)
        rotate(m);
    else
        timer_set(&m->loop, &m->tickets, due > now ? due - now : 0);
}

void master_tickets_stop(struct master *m)
{
    timer_deinit(&m->loop, &m->tickets);
}
