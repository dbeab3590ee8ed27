/* See chunked.h. Extensions are bounded as Go's net/http bounds them: what they take beyond
 * OVERHEAD_MAX must be paid for by data, so a long stream may sign its chunks and a body made of
 * extensions is refused. */
#include "chunked.h"

#include "chars.h"

enum {
    SIZE_DIGITS_MAX = 16,
    OVERHEAD_MAX = 16384 /* bytes */
};

enum state {
    SIZE_FIRST,
    SIZE,
    SIZE_LF,
    EXT_SPACE,      /* behind a size or a value: BWS until ';' */
    EXT_NAME_FIRST, /* behind ';' */
    EXT_NAME,
    EXT_NAME_SPACE, /* BWS until '=' or ';' */
    EXT_VALUE_FIRST,
    EXT_VALUE,
    EXT_QUOTED,
    EXT_ESCAPED,
    EXT_QUOTED_END,
    DATA,
    DATA_CR,
    DATA_LF,
    TRAILER_FIRST, /* at the start of a line */
    TRAILER_NAME,
    TRAILER_VALUE,
    TRAILER_LF,
    END_LF,
    ENDED
};

enum verdict { FEED, DROP, BAD };

void chunked_init(struct chunked *c, size_t trailer_max, uint32_t fields_max)
{
    *c = (struct chunked){ .trailer_max = trailer_max, .fields_max = fields_max };
}

bool chunked_ended(const struct chunked *c)
{
    return c->state == ENDED;
}

static enum verdict bad(struct chunked *c, int status, const char *fault)
{
    c->status = status;
    c->fault = fault;
    return BAD;
}

static enum verdict to(struct chunked *c, enum state state, enum verdict verdict)
{
    c->state = state;
    return verdict;
}

static bool blank(char ch)
{
    return ch == ' ' || ch == '\t';
}

static enum verdict size_digit(struct chunked *c, char ch)
{
    if (c->state == SIZE_FIRST) {
        c->digits = 0;
        c->left = 0;
    }
    if (++c->digits > SIZE_DIGITS_MAX)
        return bad(c, 400, "chunk size with too many digits");
    c->left = c->left << 4 | char_hex(ch);
    if (c->left > INT64_MAX)
        return bad(c, 400, "chunk size too large");
    return to(c, SIZE, FEED);
}

static enum verdict size_step(struct chunked *c, char ch)
{
    if (c->state == SIZE_LF) {
        if (ch != '\n')
            return bad(c, 400, "chunk size line does not end in CRLF");
        c->overhead -= c->overhead < c->left ? c->overhead : (size_t)c->left;
        return to(c, c->left > 0 ? DATA : TRAILER_FIRST, FEED);
    }
    if (char_is(ch, CHAR_HEX))
        return size_digit(c, ch);
    if (c->state == SIZE_FIRST)
        return bad(c, 400, "chunk size is no hexadecimal number");
    if (ch == '\r')
        return to(c, SIZE_LF, FEED);
    if (ch == ';')
        return to(c, EXT_NAME_FIRST, DROP);
    if (blank(ch))
        return to(c, EXT_SPACE, DROP);
    return bad(c, 400, "chunk size is no hexadecimal number");
}

/* chunk-ext = *( BWS ";" BWS name [ BWS "=" BWS ( token / quoted-string ) ] ) (RFC 9112, section
 * 7.1.1) */
static enum verdict ext_step(struct chunked *c, char ch)
{
    switch (c->state) {
    case EXT_NAME_FIRST:
    case EXT_NAME:
        if (char_is(ch, CHAR_TOKEN))
            return to(c, EXT_NAME, DROP);
        if (c->state == EXT_NAME_FIRST)
            return blank(ch) ? DROP : BAD;
        /* fall through */
    case EXT_NAME_SPACE:
        if (ch == '=')
            return to(c, EXT_VALUE_FIRST, DROP);
        if (blank(ch))
            return to(c, EXT_NAME_SPACE, DROP);
        if (ch == '\r' && c->state == EXT_NAME)
            return to(c, SIZE_LF, FEED);
        return ch == ';' ? to(c, EXT_NAME_FIRST, DROP) : BAD;
    case EXT_VALUE_FIRST:
        if (ch == '"')
            return to(c, EXT_QUOTED, DROP);
        if (char_is(ch, CHAR_TOKEN))
            return to(c, EXT_VALUE, DROP);
        return blank(ch) ? DROP : BAD;
    case EXT_QUOTED:
        if (!char_is(ch, CHAR_VALUE))
            return BAD;
        return to(c, ch == '"' ? EXT_QUOTED_END : ch == '\\' ? EXT_ESCAPED : EXT_QUOTED, DROP);
    case EXT_ESCAPED: return char_is(ch, CHAR_VALUE) ? to(c, EXT_QUOTED, DROP) : BAD;
    case EXT_VALUE:
        if (char_is(ch, CHAR_TOKEN))
            return DROP;
        /* fall through */
    default: /* EXT_QUOTED_END, EXT_SPACE */
        if (ch == '\r' && c->state != EXT_SPACE)
            return to(c, SIZE_LF, FEED);
        if (blank(ch))
            return to(c, EXT_SPACE, DROP);
        return ch == ';' ? to(c, EXT_NAME_FIRST, DROP) : BAD;
    }
}

static enum verdict ext_checked(struct chunked *c, char ch)
{
    enum verdict verdict = ext_step(c, ch);
    if (verdict == BAD)
        return bad(c, 400, "malformed chunk extension");
    if (++c->overhead > OVERHEAD_MAX)
        return bad(c, 400, "too many bytes of chunk extensions");
    return verdict;
}

static enum verdict trailer_step(struct chunked *c, char ch)
{
    switch (c->state) {
    case TRAILER_FIRST:
        if (ch == '\r')
            return to(c, END_LF, FEED);
        if (!char_is(ch, CHAR_TOKEN))
            return bad(c, 400, "malformed trailer field");
        if (++c->fields > c->fields_max)
            return bad(c, 431, "too many trailer fields");
        return to(c, TRAILER_NAME, DROP);
    case TRAILER_NAME:
        if (char_is(ch, CHAR_TOKEN))
            return DROP;
        return ch == ':' ? to(c, TRAILER_VALUE, DROP) : bad(c, 400, "malformed trailer field");
    case TRAILER_VALUE:
        if (char_is(ch, CHAR_VALUE))
            return DROP;
        return ch == '\r' ? to(c, TRAILER_LF, DROP) : bad(c, 400, "malformed trailer field");
    case TRAILER_LF:
        return ch == '\n' ? to(c, TRAILER_FIRST, DROP) : bad(c, 400, "malformed trailer field");
    default: /* END_LF */
        return ch == '\n' ? to(c, ENDED, FEED) : bad(c, 400, "body does not end in CRLF");
    }
}

static enum verdict step(struct chunked *c, char ch)
{
    if (c->state <= SIZE_LF)
        return size_step(c, ch);
    if (c->state <= EXT_QUOTED_END)
        return ext_checked(c, ch);
    if (c->state == DATA_CR)
        return ch == '\r' ? to(c, DATA_LF, FEED) : bad(c, 400, "chunk is longer than its size");
    if (c->state == DATA_LF)
        return ch == '\n' ? to(c, SIZE_FIRST, FEED) : bad(c, 400, "chunk does not end in CRLF");
    if (++c->trailer > c->trailer_max)
        return bad(c, 431, "trailer section too large");
    return trailer_step(c, ch);
}

static size_t data(struct chunked *c, size_t n)
{
    if (n > c->left)
        n = (size_t)c->left;
    c->left -= n;
    if (c->left == 0)
        c->state = DATA_CR;
    return n;
}

size_t chunked_next(struct chunked *c, const char *bytes, size_t n, bool *feed)
{
    enum verdict first = FEED;
    for (size_t i = 0; i < n; i++) {
        struct chunked before = *c;
        if (c->state == DATA) {
            /* Data behind a line end is one segment with it; behind anything dropped it cannot
             * be. */
            *feed = true;
            return i + data(c, n - i);
        }
        enum verdict verdict = step(c, bytes[i]);
        if (verdict == BAD)
            return 0;
        if (i == 0)
            first = verdict;
        if (verdict != first) {
            *c = before;
            *feed = first == FEED;
            return i;
        }
        if (c->state == ENDED)
            n = i + 1;
    }
    *feed = first == FEED;
    return n;
}
