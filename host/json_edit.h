/* Edits of one value inside a JSON document by its place: the value's bytes are replaced, a member
 * is added or taken out, and every other byte stays as it is, white space, escapes, large numbers
 * and all. */
#ifndef TOLLGATE_JSON_EDIT_H
#define TOLLGATE_JSON_EDIT_H

#include "buf.h"
#include "json.h"

/* One step of a path: a member's name, or with key.p == NULL the index of an array's element, from
 * 0. */
struct json_step {
    struct slice key;
    uint64_t index;
};

enum { JSON_STEPS = 16 };

struct json_place {
    bool found;
    enum json_type type; /* of the value; JSON_OBJECT and JSON_ARRAY for containers */
    size_t start, end;   /* the value's bytes */
    size_t member;       /* where its member begins: the key's quote, or the element itself */
    size_t before;       /* behind what stands before the member: the last value's end, or the open
                            bracket */
    bool first;          /* nothing stands before it in its container */
    bool parent; /* the container that it is or would be in was found, and is of the right kind */
    bool empty;  /* that container has nothing in it */
    size_t parent_start, parent_end; /* its brackets: of the opening one, and of the closing one */
};

/* Finds a value. 0; -1 where the document is no JSON or a name on the path stands twice in its
 * object: *fault says it (static text) and *at where. */
int json_locate(struct slice doc, const struct json_step *path, unsigned n, struct json_place *out,
                const char **fault, size_t *at);
/* Appends the document to out with the value replaced by JSON text, or added as the last member
 * where it is absent and its container is an object. False, and nothing appended, where it has no
 * place to be. */
bool json_set(struct slice doc, const struct json_place *p, struct slice key, struct slice value,
              struct buf *out);
/* Appends the document without the value's member or element. */
void json_remove(struct slice doc, const struct json_place *p, struct buf *out);

#endif
