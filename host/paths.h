/* Where the files that ship with the program are: $TOLLGATE_HOME, else share/tollgate beside the
 * binary's folder, else the source tree that it was built from. */
#ifndef TOLLGATE_PATHS_H
#define TOLLGATE_PATHS_H

#include <stddef.h>

/* Writes the folder that holds "plugins" and "scripts/redis"; returns out. */
const char *paths_home(char *out, size_t size);
/* What a further process of this program is started from: our own image, which stays what it is
 * when the file is replaced; or $TOLLGATE_IMAGE, for profilers whose processes have another one
 * (valgrind). */
const char *paths_image(void);
/* mkdir -p. 0, or a negative UV_E*. */
int paths_make(const char *dir);
/* Creates a file and locks it, as long as the descriptor that is returned is open; tries for
 * wait_ms, since a process that ends may hold it still. Or a negative UV_E*: UV_EBUSY where another
 * has it. */
int paths_lock(const char *path, int wait_ms);

#endif
