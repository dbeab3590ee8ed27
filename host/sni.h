/* Which certificate serves a name that a client asks for by SNI (RFC 6066, section 3): the one of
 * that very name, else the one of "*." and the rest behind its first label (RFC 6125, section
 * 6.4.3), else none. Where several are added under one name the first stays. */
#ifndef TOLLGATE_SNI_H
#define TOLLGATE_SNI_H

#include "slice.h"

enum { SNI_NAME_MAX = 255 };

struct sni;

struct sni *sni_new(void);
void sni_free(struct sni *s); /* NULL is fine */
/* The name is copied, in any case; one that is empty or too long is left out. */
void sni_add(struct sni *s, struct slice name, unsigned which);
/* -1 where there is none. Sorts what was added since the last call. */
int sni_find(struct sni *s, struct slice name);

#endif
