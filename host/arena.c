/* See arena.h. Blocks grow by doubling up to 64 KiB; what is larger gets a block of its own. */
#include "arena.h"

#include <stdint.h>
#include <stdio.h>

#include "mem.h"

enum { ARENA_FIRST = 4096, ARENA_LARGEST = 65536 }; /* bytes */

struct arena_block {
    struct arena_block *next;
    size_t used, size;
    char data[];
};

static struct arena_block *block_new(size_t size)
{
    struct arena_block *b = mem_alloc(sizeof *b + size);
    b->next = NULL;
    b->used = 0;
    b->size = size;
    return b;
}

static void blocks_free(struct arena_block *b)
{
    while (b != NULL) {
        struct arena_block *next = b->next;
        mem_free(b);
        b = next;
    }
}

void arena_init(struct arena *a)
{
    a->first = a->last = NULL;
}

void arena_deinit(struct arena *a)
{
    blocks_free(a->first);
    a->first = a->last = NULL;
}

void arena_reset(struct arena *a)
{
    if (a->first == NULL)
        return;
    blocks_free(a->first->next);
    a->first->next = NULL;
    a->first->used = 0;
    a->last = a->first;
    if (a->first->size > ARENA_LARGEST)
        arena_deinit(a);
}

static void *grow(struct arena *a, size_t n)
{
    size_t size = a->last == NULL ? ARENA_FIRST : a->last->size * 2;
    if (size > ARENA_LARGEST)
        size = ARENA_LARGEST;
    if (size < n)
        size = n;
    struct arena_block *b = block_new(size);
    if (a->last == NULL)
        a->first = b;
    else
        a->last->next = b;
    a->last = b;
    b->used = n;
    return b->data;
}

void *arena_alloc(struct arena *a, size_t n)
{
    n = (n + 7) & ~(size_t)7;
    struct arena_block *b = a->last;
    if (b == NULL || b->size - b->used < n)
        return grow(a, n);
    void *p = b->data + b->used;
    b->used += n;
    return p;
}

void *arena_zalloc(struct arena *a, size_t n)
{
    return memset(arena_alloc(a, n), 0, n);
}

struct slice arena_dup(struct arena *a, struct slice s)
{
    char *p = arena_alloc(a, s.n + 1);
    if (s.n > 0)
        memcpy(p, s.p, s.n);
    p[s.n] = '\0';
    return (struct slice){ p, s.n };
}

struct slice arena_printf(struct arena *a, const char *format, ...)
{
    va_list ap, again;
    va_start(ap, format);
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, format, ap);
    char *p = arena_alloc(a, (size_t)n + 1);
    vsnprintf(p, (size_t)n + 1, format, again);
    va_end(again);
    va_end(ap);
    return (struct slice){ p, (size_t)n };
}
