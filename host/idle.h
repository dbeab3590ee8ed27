/* Those who wait, the one that has waited longest first: a list that its members enter at the end
 * and leave from anywhere in no time. Members embed a place in it; nothing is allocated. */
#ifndef TOLLGATE_IDLE_H
#define TOLLGATE_IDLE_H

#include <stdbool.h>
#include <stddef.h>

struct idler {
    struct idler *prev, *next;
    bool in; /* a list */
};

struct idlers {
    struct idler *first, *last;
};

static inline void idle_leave(struct idlers *list, struct idler *i)
{
    if (!i->in)
        return;
    *(i->prev != NULL ? &i->prev->next : &list->first) = i->next;
    *(i->next != NULL ? &i->next->prev : &list->last) = i->prev;
    *i = (struct idler){ NULL, NULL, false };
}

/* Goes to the end, also one that is in the list already. */
static inline void idle_enter(struct idlers *list, struct idler *i)
{
    idle_leave(list, i);
    *i = (struct idler){ list->last, NULL, true };
    *(list->last != NULL ? &list->last->next : &list->first) = i;
    list->last = i;
}

#endif
