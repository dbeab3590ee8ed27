/* What a configuration was made of, read once: files (and their absence) and environment values, by
 * name. A recording one reads the disk and remembers; one from a descriptor gives what it holds, so
 * that every worker loads the same bytes whatever becomes of the disk meanwhile. A file that it
 * does not hold (a module that a plugin requires only while it serves) is read from the disk then,
 * once. */
#ifndef TOLLGATE_SNAPSHOT_H
#define TOLLGATE_SNAPSHOT_H

#include <stdbool.h>

#include "buf.h"
#include "slice.h"

struct snapshot;

enum { SNAPSHOT_HEX = 65, SNAPSHOT_STAMP = 128 };

struct snapshot *snapshot_new(void);
/* Maps one that snapshot_write wrote; the descriptor stays the caller's. NULL where it is damaged.
 */
struct snapshot *snapshot_read_fd(int fd);
void snapshot_free(struct snapshot *s); /* NULL is allowed */

/* True for one that records: what it holds is new. */
bool snapshot_recording(const struct snapshot *s);
/* A file's bytes, borrowed from s, with a NUL behind them. 0, or a negative UV_E*. */
int snapshot_file(struct snapshot *s, const char *path, struct slice *out);
/* Says what a file holds, whatever is on the disk; copied. Before it has been read. */
void snapshot_put_file(struct snapshot *s, const char *path, struct slice bytes);
/* What tells one state of a file on the disk from another (inode, size, times), as text; "" where
 * there is no file. */
void snapshot_stamp(const char *path, char out[SNAPSHOT_STAMP]);
/* The stamp of a file when it was read, or just before; p == NULL where it is not known. */
struct slice snapshot_stamp_read(struct snapshot *s, const char *path);
/* An environment value, borrowed; p == NULL where it is not set. */
struct slice snapshot_env(struct snapshot *s, const char *name);
/* Adds a value of the recorder's own under a name; snapshot_note reads it. */
void snapshot_set_note(struct snapshot *s, const char *name, struct slice value);
struct slice snapshot_note(struct snapshot *s, const char *name);

/* Writes all of it to a descriptor. 0, or a negative UV_E*. */
int snapshot_write(struct snapshot *s, int fd);
/* SHA-256 over everything but notes, as hex. */
void snapshot_hash(struct snapshot *s, char out[SNAPSHOT_HEX]);
/* Calls cb for each file that was asked for, whether it exists or not. */
void snapshot_each_path(struct snapshot *s, void (*cb)(void *arg, const char *path), void *arg);
/* Calls cb for each file that exists, in the order of reading. */
void snapshot_each_file(struct snapshot *s,
                        void (*cb)(void *arg, const char *path, struct slice bytes), void *arg);

#endif
