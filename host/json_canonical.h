/* The canonical form of a JSON text, to be hashed: members sorted by name, no white space, strings
 * escaped in one way, numbers as they stand (1.0 is not 1, and no digit is lost). Two texts have
 * the same form where they differ in white space, the order of members and escapes alone. */
#ifndef TOLLGATE_JSON_CANONICAL_H
#define TOLLGATE_JSON_CANONICAL_H

#include "buf.h"
#include "json.h"

/* Appends the canonical form of doc to out; `omit` names members of the outermost object that are
 * left out. 0; -1 where the text is no JSON, or has no form that no other text has: a name that
 * stands twice in its object, or half of a surrogate pair. Then out is as it was, *fault says what
 * (static text) and *at where. */
int json_canonical(struct slice doc, const struct slice *omit, unsigned n, struct buf *out,
                   const char **fault, size_t *at);

#endif
