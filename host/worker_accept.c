/* See worker_internal.h. A worker accepts on the sockets of its own place, and on those of another
 * place while nobody serves that or its worker's beat is stale, so neither a death nor a stuck loop
 * keeps a connection waiting. */
#include "log.h"
#include "mem.h"
#include "worker_internal.h"

enum { STALE_MS = 250 };

static bool stale(struct worker *w, unsigned place)
{
    const struct zone_slot *s = zone_at(w->zone, place);
    return s == NULL || zone_now() - s->beat > STALE_MS;
}

void worker_accept(struct worker *w)
{
    for (unsigned i = 0; i < w->places && w->serving; i++) {
        bool due = i == w->place || stale(w, i);
        for (unsigned a = 0; a < w->naddresses; a++) {
            struct listener *ln = w->listeners[a * w->places + i];
            if (!due)
                server_accept_stop(ln);
            else if (server_accept_start(ln) != 0 && i == w->place)
                log_error("worker %u: cannot accept", w->place);
        }
    }
}

void worker_serve(struct worker *w)
{
    unsigned n = w->naddresses * w->places;
    if (w->serving)
        return;
    w->listeners = mem_zalloc((n + 1) * sizeof *w->listeners);
    for (unsigned i = 0; i < n; i++)
        w->listeners[i] = server_listener(w->gw.server, w->fds[i], i / w->places, w->limit);
    w->serving = true;
    worker_show(w);
    w->slot->state = ZONE_SERVING;
    worker_accept(w);
}
