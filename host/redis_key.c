/* See redis_key.h. */
#include "redis_key.h"

static bool is_plain(unsigned char c)
{
    return c > 0x20 && c != 0x7F && c != ':' && c != '%' && c != '{' && c != '}';
}

bool redis_key_plain(struct slice part)
{
    for (size_t i = 0; i < part.n; i++) {
        if (!is_plain((unsigned char)part.p[i]))
            return false;
    }
    return true;
}

void redis_key_add(struct buf *out, struct slice part)
{
    static const char digits[] = "0123456789ABCDEF";
    char *to = buf_reserve(out, part.n * 3);
    for (size_t i = 0; i < part.n; i++) {
        unsigned char c = (unsigned char)part.p[i];
        if (is_plain(c)) {
            *to++ = (char)c;
            continue;
        }
        *to++ = '%';
        *to++ = digits[c >> 4];
        *to++ = digits[c & 15];
    }
    out->n = (size_t)(to - out->p);
}

void redis_key_add_tag(struct buf *out, struct slice part, bool hash_tags)
{
    if (hash_tags)
        buf_add_text(out, "{");
    redis_key_add(out, part);
    if (hash_tags)
        buf_add_text(out, "}");
}
