/* A byte buffer that grows. It owns its bytes; pointers into it are valid until the next call that
 * adds. */
#ifndef TOLLGATE_BUF_H
#define TOLLGATE_BUF_H

#include <stddef.h>
#include <stdint.h>

#include "slice.h"

struct buf {
    char *p;
    size_t n, cap;
};

/* Bytes that all buffers of this process have taken. */
size_t buf_bytes(void);
void buf_init(struct buf *b);
void buf_deinit(struct buf *b);
/* Makes cap - n at least n. */
void buf_grow(struct buf *b, size_t n);

/* Room for n more bytes behind b->n; returns where they go. The caller adds to b->n what it wrote.
 */
static inline char *buf_reserve(struct buf *b, size_t n)
{
    if (b->cap - b->n < n)
        buf_grow(b, n);
    return b->p + b->n;
}

/* Inline, so that what is known to the compiler (a literal, mostly) is a few stores. */
static inline void buf_add(struct buf *b, const void *p, size_t n)
{
    if (n == 0)
        return;
    memcpy(buf_reserve(b, n), p, n);
    b->n += n;
}

static inline void buf_add_slice(struct buf *b, struct slice s)
{
    buf_add(b, s.p, s.n);
}

static inline void buf_add_text(struct buf *b, const char *text)
{
    buf_add(b, text, strlen(text));
}

/* In decimal; an eighth of what buf_printf takes. */
void buf_add_number(struct buf *b, uint64_t n);
void buf_printf(struct buf *b, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Drops the first n bytes. */
void buf_consume(struct buf *b, size_t n);
void buf_clear(struct buf *b);

static inline struct slice buf_slice(const struct buf *b)
{
    return (struct slice){ b->p, b->n };
}

#endif
