/* Parts of names of keys in Redis, as scripts/README.md describes them: percent-encoded where a
 * byte could be taken for the name's own punctuation, so that two different parts never make one
 * key. */
#ifndef TOLLGATE_REDIS_KEY_H
#define TOLLGATE_REDIS_KEY_H

#include <stdbool.h>

#include "buf.h"
#include "slice.h"

/* Whether a part stays as it is. */
bool redis_key_plain(struct slice part);
void redis_key_add(struct buf *out, struct slice part);
/* The part by which Redis Cluster places the key: in literal braces where `hash_tags`. */
void redis_key_add_tag(struct buf *out, struct slice part, bool hash_tags);

#endif
