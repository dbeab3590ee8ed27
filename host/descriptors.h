/* File descriptors as what runs out: a process may have so many, and what dials origins and Redis
 * must not find them all taken by clients. A new descriptor always is the lowest number that is
 * free, so that a high number says that nearly all below it are in use. */
#ifndef TOLLGATE_DESCRIPTORS_H
#define TOLLGATE_DESCRIPTORS_H

#include <stdbool.h>

/* Allows this process, and what it starts, as many as it may allow itself. Returns how many. */
unsigned long descriptors_raise(void);
/* How many this process may have. */
unsigned long descriptors_limit(void);
/* How many of `limit` are kept from clients. */
unsigned long descriptors_reserve(unsigned long limit);
/* Whether no more than the reserve is free. */
bool descriptors_short(void);

#endif
