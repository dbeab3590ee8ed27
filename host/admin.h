/* The admin listener: read-only figures and health over HTTP, apart from the traffic. */
#ifndef TOLLGATE_ADMIN_H
#define TOLLGATE_ADMIN_H

#include "exchange.h"

/* Answers /healthz (the process turns), /readyz (it can serve; 503 says why not) and /metrics. A Host that is neither an IP
 * address nor localhost is refused, so that no web page reaches it through a name of its own. */
void admin_begin(struct exchange *x);

#endif
