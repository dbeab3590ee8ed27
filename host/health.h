/* Active health checks of a generation's targets: a GET or a connection at an interval, made by the
 * worker that leads, once for the whole replica. What comes out stands in target_state, where all
 * workers see it and pass the target over; it is believed for a few intervals only, so that a check
 * that nobody makes any more keeps nothing out.
 *
 * Targets that are the same (URL, provider, model and check) are checked once, on however many
 * routes they stand. A check of a target never overlaps its next one. */
#ifndef TOLLGATE_HEALTH_H
#define TOLLGATE_HEALTH_H

#include "generation.h"

struct health;

/* Starts the checks of g's targets; NULL where there are none. What is known of targets of `old`
 * (or NULL), which g follows, is forgotten where g does not check them any more. */
struct health *health_start(struct generation *g, const struct generation *old);
/* Ends them at once, without a result. NULL is fine. */
void health_stop(struct health *h);

#endif
