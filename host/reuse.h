/* When a kept connection to an origin may be used again, and when a request that was lost on one is
 * sent once more: the same for what clients ask of the gateway and for what plugins fetch. */
#ifndef TOLLGATE_REUSE_H
#define TOLLGATE_REUSE_H

#include "message.h"

/* For how long, in milliseconds, an origin that answered with these fields keeps an idle
 * connection, less a second for the way: a request sent on a connection that is being closed is
 * lost. 0 where it does not say. */
uint64_t reuse_keep_ms(const struct headers *answer);
/* Whether a request without any answer, on a connection that had served others before (uses > 1),
 * may be sent again on a new one: it was most likely never seen, nothing is lost of a body, and the
 * method is idempotent (RFC 9112, section 9.3.1). */
bool reuse_may_retry(uint64_t uses, struct slice method, enum framing framing);

#endif
