/* From a member to the struct that it is embedded in: how callbacks of timers, deferred work and
 * handles find their owner. */
#ifndef TOLLGATE_CONTAINER_H
#define TOLLGATE_CONTAINER_H

#include <stddef.h>

#define CONTAINER(ptr, type, member) ((type *)((char *)(ptr)-offsetof(type, member)))

#endif
