/* What the master knows of a configuration without running Lua: the snapshot that load_check wrote,
 * with its notes. */
#ifndef TOLLGATE_PLAN_H
#define TOLLGATE_PLAN_H

#include <stdint.h>

#include "buf.h"
#include "snapshot.h"

struct plan {
    struct plan *next; /* older */
    uint64_t number;   /* of the generation */
    int fd;            /* the snapshot's file, sent to workers; owned */
    struct snapshot *snapshot;
    char hash[SNAPSHOT_HEX];
    uint32_t connections;
    uint64_t drain_ms, watchdog_ms, check_ms, ticket_keys_ms, memory;
    uint32_t quarantine_after;
    bool watch;
};

/* Takes the descriptor. NULL where it is damaged. */
struct plan *plan_new(int fd, uint64_t number);
void plan_free(struct plan *p);
/* A note as text that ends in a NUL; NULL where there is none. */
const char *plan_text(const struct plan *p, const char *name);
/* Logs what the configuration's trial warned of. */
void plan_warn(const struct plan *p);
/* One line for each key that needs a restart: its name, and a digest of what it says. */
void plan_restart_lines(struct snapshot *s, struct buf *out);
/* The keys that two plans differ in and that need a restart, as "a, b"; empty where there are none.
 */
void plan_restart_keys(const struct plan *a, const struct plan *b, struct buf *out);
/* What a mark names, as "plugin P, phase X, route R"; returns the plugin, or NULL where the mark
 * names none. */
const char *plan_mark(const struct plan *p, uint64_t mark, char *out, size_t size);

#endif
