/* The API keys of a file of JSON lines: loaded at once or not at all, read-only afterwards,
 * found by their secret. Only digests are kept. */
#ifndef TOLLGATE_KEYSTORE_H
#define TOLLGATE_KEYSTORE_H

#include "key_record.h"

enum { KEY_SECRET_SIZE = 47, KEY_HEX_SIZE = 65 }; /* bytes, the NUL included */

struct keystore;

/* NULL, and the first fault as "path:line: message" appended to `fault`. Blank lines are
 * skipped. */
struct keystore *keystore_open(const char *path, struct buf *fault);
/* The same of text that was read already; path is for messages. */
struct keystore *keystore_parse(struct slice text, const char *path, struct buf *fault);
void keystore_free(struct keystore *ks); /* NULL is allowed */

/* Records are borrowed until keystore_free. NULL where no record has that secret or id. How long
 * it takes tells nothing about the secrets of others. */
const struct key_record *keystore_find(const struct keystore *ks, struct slice secret);
const struct key_record *keystore_find_id(const struct keystore *ks, struct slice id);
size_t keystore_count(const struct keystore *ks);
/* i < keystore_count, in the order of the file. */
const struct key_record *keystore_at(const struct keystore *ks, size_t i);
size_t keystore_index(const struct keystore *ks, const struct key_record *r);

/* The secret's SHA-256 as a record has it: 64 lower-case digits and a NUL. */
void keystore_digest_hex(struct slice secret, char out[KEY_HEX_SIZE]);
/* A new secret: "tg-", 256 random bits as base64url, and a NUL. 0 or -errno. */
int keystore_secret_new(char out[KEY_SECRET_SIZE]);

#endif
