/* Arguments of a script call. */
#include "quota_internal.h"

#include <stdio.h>

#include "put.h"

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
    buf_add(&a->names, ":", 1);
    buf_add_number(&a->names, (uint64_t)month); /* six digits: yyyymm */
    quota_args_key(a, buf_slice(&a->names));
}

void quota_args_slice(struct quota_args *a, struct slice s)
{
    a->args[a->nargs++] = s;
}

void quota_args_integer(struct quota_args *a, uint64_t n)
{
    char *text = a->numbers[a->nnumbers++];
    quota_args_slice(a, (struct slice){ text, (size_t)(put_number(text, n) - text) });
}

void quota_args_double(struct quota_args *a, double n)
{
    if (n >= 0 && n < (double)QUOTA_TOKENS_MAX && n == (double)(uint64_t)n) { /* most are whole */
        quota_args_integer(a, (uint64_t)n);
        return;
    }
    char *text = a->numbers[a->nnumbers++];
    int size = snprintf(text, sizeof a->numbers[0], "%.17g", n);
    quota_args_slice(a, (struct slice){ text, (size_t)size });
}
