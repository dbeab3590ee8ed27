/* Arguments of a script call. */
#include "quota_internal.h"

#include <inttypes.h>
#include <stdio.h>

void quota_args_clear(struct quota_args *a)
{
    a->nkeys = a->nargs = a->nnumbers = 0;
    buf_clear(&a->names);
}

void quota_args_key(struct quota_args *a, struct slice key)
{
    a->keys[a->nkeys++] = key;
}

/* At most once a call: the name is made in a->names. */
void quota_args_counter(struct quota_args *a, const struct quota_key *k, int month)
{
    buf_clear(&a->names);
    buf_add_slice(&a->names, k->tokens);
    buf_printf(&a->names, ":%06d", month);
    quota_args_key(a, buf_slice(&a->names));
}

void quota_args_slice(struct quota_args *a, struct slice s)
{
    a->args[a->nargs++] = s;
}

void quota_args_integer(struct quota_args *a, uint64_t n)
{
    char *text = a->numbers[a->nnumbers++];
    int size = snprintf(text, sizeof a->numbers[0], "%" PRIu64, n);
    quota_args_slice(a, (struct slice){ text, (size_t)size });
}

void quota_args_double(struct quota_args *a, double n)
{
    char *text = a->numbers[a->nnumbers++];
    int size = snprintf(text, sizeof a->numbers[0], "%.17g", n);
    quota_args_slice(a, (struct slice){ text, (size_t)size });
}
