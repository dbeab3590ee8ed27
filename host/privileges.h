/* Who we are: becoming an ordinary user for good, once what needs root has been done; and keeping
 * what we hold in memory out of core dumps. */
#ifndef TOLLGATE_PRIVILEGES_H
#define TOLLGATE_PRIVILEGES_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct identity {
    uid_t uid;
    gid_t gid;
};

enum { PRIVILEGES_WHY = 256 }; /* bytes of a reason */

/* "name", "name:group", or numbers with a group, "1000:1000". 0, or -1 and why. */
int privileges_find(const char *text, struct identity *out, char why[PRIVILEGES_WHY]);
/* Gives up everything but the identity: supplementary groups, all capabilities, the bounding set,
 * and the way back (no_new_privs); makes sure of it. Nothing to do where we are that user already
 * without being root. 0, or -1 and why: then the process must end. */
int privileges_become(const struct identity *id, char why[PRIVILEGES_WHY]);
/* Gives the folder and what is in it to the identity; links are not followed, and a file that has a
 * second name is left, since it may be somebody else's. 0, or a negative UV_E*. */
int privileges_own(const char *path, const struct identity *id);
/* The folder alone, where root has it. */
void privileges_own_folder(const char *path, const struct identity *id);

/* No core dumps of this process, nor of those that it starts. */
void privileges_hide(void);
/* In a process that was started by one that hides: the kernel forgets half of it by exec. */
void privileges_hide_too(void);

#endif
