/* Allocation that does not fail: running out of memory ends the process with a message, since a
 * gateway that half works is worse than one that its supervisor restarts. */
#ifndef TOLLGATE_MEM_H
#define TOLLGATE_MEM_H

#include <stddef.h>

void *mem_alloc(size_t n);  /* not cleared */
void *mem_zalloc(size_t n); /* cleared */
void *mem_realloc(void *p, size_t n);
char *mem_strdup(const char *text);
char *mem_strndup(const char *p, size_t n); /* copies n bytes and adds a NUL */
void mem_free(void *p);

#endif
