/* SipHash-1-3 (Aumasson and Bernstein): a hash with a secret key, for tables whose keys strangers
 * choose. Who does not know the secret cannot make many keys collide. */
#ifndef TOLLGATE_SIPHASH_H
#define TOLLGATE_SIPHASH_H

#include <stdint.h>

#include "slice.h"

uint64_t siphash(const uint64_t secret[2], struct slice text);

#endif
