/* What a configuration says of TLS on one address: files by name. A worker makes a context of it
 * from its snapshot; the master, which reads no configuration, gets it for the admin listener as a
 * note in the snapshot. */
#ifndef TOLLGATE_TLS_CONFIG_H
#define TOLLGATE_TLS_CONFIG_H

#include "arena.h"
#include "buf.h"
#include "snapshot.h"
#include "tls_context.h"

struct ticket_ring;

struct tls_config_certificate {
    const char *path; /* where it stands in the configuration, for faults */
    const char *cert, *key;
    const char **names;
    uint32_t nnames;
};

/* Text is borrowed, of whatever arena it was made in. */
struct tls_config {
    const char *path;
    struct tls_config_certificate *certificates;
    uint32_t ncertificates;
    const char **ciphers;
    uint32_t nciphers;
    const char *min_version;
    const char *ca; /* NULL: clients are not asked for certificates */
    bool required;
    bool tickets;
    const char *ticket_keys; /* NULL: those of the ring */
};

/* Reads the files, and makes a context. A certificate that is not valid now is a fault where the
 * snapshot is a new one: a worker that starts again by what was taken serves on. `ring` may be NULL
 * (see tls_server.h). A reference, or NULL with faults, one a line; warnings likewise. */
struct tls_context *tls_config_load(const struct tls_config *c, struct snapshot *files,
                                    const struct ticket_ring *ring, struct buf *faults,
                                    struct buf *warnings);
/* As bytes, and back. The copy's text is in the arena; NULL where the bytes are damaged. */
void tls_config_write(const struct tls_config *c, struct buf *out);
struct tls_config *tls_config_read(struct arena *a, struct slice bytes);

#endif
