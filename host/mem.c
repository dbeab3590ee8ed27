/* See mem.h. */
#include "mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *check(void *p, size_t n)
{
    if (p == NULL && n != 0) {
        fprintf(stderr, "tollgate: out of memory (%zu bytes)\n", n);
        abort();
    }
    return p;
}

void *mem_alloc(size_t n)
{
    return check(malloc(n), n);
}

void *mem_zalloc(size_t n)
{
    return check(calloc(1, n), n);
}

void *mem_realloc(void *p, size_t n)
{
    return check(realloc(p, n), n);
}

char *mem_strdup(const char *text)
{
    return mem_strndup(text, strlen(text));
}

char *mem_strndup(const char *p, size_t n)
{
    char *copy = mem_alloc(n + 1);
    if (n > 0)
        memcpy(copy, p, n);
    copy[n] = '\0';
    return copy;
}

void mem_free(void *p)
{
    free(p);
}
