/* See buf.h. */
#include "buf.h"

#include <stdarg.h>
#include <stdio.h>

#include "mem.h"

static size_t bytes;

size_t buf_bytes(void)
{
    return bytes;
}

void buf_init(struct buf *b)
{
    b->p = NULL;
    b->n = b->cap = 0;
}

void buf_deinit(struct buf *b)
{
    bytes -= b->cap;
    mem_free(b->p);
    buf_init(b);
}

void buf_grow(struct buf *b, size_t n)
{
    size_t cap = b->cap < 256 ? 256 : b->cap * 2;
    if (cap < b->n + n)
        cap = b->n + n;
    b->p = mem_realloc(b->p, cap);
    bytes += cap - b->cap;
    b->cap = cap;
}

void buf_add_number(struct buf *b, uint64_t n)
{
    char text[20];
    size_t at = sizeof text;
    do
        text[--at] = (char)('0' + n % 10);
    while ((n /= 10) > 0);
    buf_add(b, text + at, sizeof text - at);
}

void buf_printf(struct buf *b, const char *format, ...)
{
    va_list ap, again;
    va_start(ap, format);
    va_copy(again, ap);
    size_t room = b->cap - b->n;
    int n = vsnprintf(room > 0 ? b->p + b->n : NULL, room, format, ap);
    if ((size_t)n >= room)
        vsnprintf(buf_reserve(b, (size_t)n + 1), (size_t)n + 1, format, again);
    b->n += (size_t)n;
    va_end(again);
    va_end(ap);
}

void buf_consume(struct buf *b, size_t n)
{
    b->n -= n;
    if (b->n > 0)
        memmove(b->p, b->p + n, b->n);
}

void buf_clear(struct buf *b)
{
    b->n = 0;
}
