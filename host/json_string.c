/* The strings of json.h: escapes, UTF-8, and writing them. Strings are most of what an LLM's bodies
 * consist of, so their plain ASCII is passed over eight bytes at a time. */
#include "chars.h"
#include "json_scan.h"

enum { PLAIN, ESCAPE, UNICODE }; /* sub */

void json_take(struct json *j, const void *p, size_t n)
{
    if (j->decoded < JSON_CAPTURE) {
        size_t room = JSON_CAPTURE - (size_t)j->decoded;
        memcpy(j->capture + j->decoded, p, n < room ? n : room);
    }
    j->decoded += n;
}

/* The UTF-8 of a code point; returns its length. */
static size_t put_utf8(unsigned char u[4], uint32_t c)
{
    size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    static const unsigned char lead[] = { 0, 0, 0xc0, 0xe0, 0xf0 };
    for (size_t i = n - 1; i > 0; i--) {
        u[i] = (unsigned char)(0x80 | (c & 0x3f));
        c >>= 6;
    }
    u[0] = (unsigned char)(lead[n] | c);
    return n;
}

static void take_code(struct json *j, uint32_t c)
{
    unsigned char u[4];
    json_take(j, u, put_utf8(u, c));
}

/* A high surrogate that no low one followed. */
static void drop_high(struct json *j)
{
    if (j->high != 0)
        take_code(j, 0xfffd);
    j->high = 0;
}

static void take_escape(struct json *j, uint32_t code)
{
    if (j->high != 0 && code >= 0xdc00 && code <= 0xdfff) {
        take_code(j, 0x10000 + ((uint32_t)(j->high - 0xd800) << 10) + (code - 0xdc00));
        j->high = 0;
        return;
    }
    drop_high(j);
    if (code >= 0xd800 && code <= 0xdbff)
        j->high = (uint16_t)code;
    else
        take_code(j, code >= 0xdc00 && code <= 0xdfff ? 0xfffd : code);
}

/* How many bytes must follow b, and the bounds of the first of them (Unicode, table 3-7); -1 where
 * b begins no character. */
static int utf8_lead(unsigned char b, uint8_t *low, uint8_t *high)
{
    *low = b == 0xe0 ? 0xa0 : b == 0xf0 ? 0x90 : 0x80;
    *high = b == 0xed ? 0x9f : b == 0xf4 ? 0x8f : 0xbf;
    if (b < 0xc2 || b > 0xf4)
        return -1;
    return b < 0xe0 ? 1 : b < 0xf0 ? 2 : 3;
}

static bool plain_word(const unsigned char *p)
{
    uint64_t w;
    memcpy(&w, p, 8);
    return json_plain(w);
}

/* The end of the run of ASCII that is neither a control character, a quote nor a backslash. */
static const unsigned char *plain_end(const unsigned char *p, const unsigned char *end)
{
    const unsigned char *begin = p;
    while (end - p >= 8 && plain_word(p))
        p += 8;
    if (end - p < 8 && end - begin >= 8 && plain_word(end - 8)) /* some bytes twice */
        return end;
    while (p < end && *p >= 0x20 && *p < 0x80 && *p != '"' && *p != '\\')
        p++;
    return p;
}

int json_begin_string(struct json *j, bool key)
{
    j->key = key;
    j->state = JSON_IN_STRING;
    j->sub = PLAIN;
    j->decoded = 0;
    j->high = 0;
    return 0;
}

static int escape(struct json *j, struct json_input *in)
{
    static const char names[] = "\"\\/bfnrt", meant[] = "\"\\/\b\f\n\r\t";
    unsigned char c = *in->p;
    if (c == 'u') {
        j->sub = UNICODE;
        j->digits = 0;
        j->code = 0;
    } else {
        const char *at = c == 0 ? NULL : strchr(names, c);
        if (at == NULL)
            return json_refuse_here(j, in, "unknown escape in a string");
        drop_high(j);
        json_take(j, meant + (at - names), 1);
        j->sub = PLAIN;
    }
    in->p++;
    return 0;
}

static int unicode_digit(struct json *j, struct json_input *in)
{
    unsigned char c = *in->p, lower = c | 0x20;
    int digit = c >= '0' && c <= '9' ? c - '0' : -1;
    if (lower >= 'a' && lower <= 'f')
        digit = lower - 'a' + 10;
    if (digit < 0)
        return json_refuse_here(j, in, "four hexadecimal digits must follow \\u");
    j->code = (uint16_t)(j->code << 4 | digit);
    in->p++;
    if (++j->digits == 4) {
        take_escape(j, j->code);
        j->sub = PLAIN;
    }
    return 0;
}

static int continuation(struct json *j, struct json_input *in)
{
    if (*in->p < j->utf8_low || *in->p > j->utf8_high)
        return json_refuse_here(j, in, "invalid UTF-8");
    json_take(j, in->p++, 1);
    j->utf8_left--;
    j->utf8_low = 0x80;
    j->utf8_high = 0xbf;
    return 0;
}

static int plain(struct json *j, struct json_input *in)
{
    const unsigned char *stop = plain_end(in->p, in->end);
    if (stop != in->p) {
        drop_high(j);
        json_take(j, in->p, (size_t)(stop - in->p));
        in->p = stop;
        return 0;
    }
    unsigned char c = *in->p;
    if (c < 0x20)
        return json_refuse_here(j, in, "control character in a string");
    if (c == '"') {
        drop_high(j);
        in->p++;
        j->state = j->key ? JSON_AT_COLON : JSON_AT_AFTER;
        return json_emit(j, j->key ? JSON_KEY : JSON_STRING, json_here(j, in));
    }
    if (c == '\\') {
        j->sub = ESCAPE;
        in->p++;
        return 0;
    }
    int left = utf8_lead(c, &j->utf8_low, &j->utf8_high);
    if (left < 0)
        return json_refuse_here(j, in, "invalid UTF-8");
    drop_high(j);
    json_take(j, in->p++, 1);
    j->utf8_left = (uint8_t)left;
    return 0;
}

int json_in_string(struct json *j, struct json_input *in)
{
    if (j->utf8_left > 0)
        return continuation(j, in);
    return j->sub == PLAIN ? plain(j, in) : j->sub == ESCAPE ? escape(j, in) : unicode_digit(j, in);
}

/* --- decoding a whole one --- */

static uint32_t hex4(const char *p)
{
    return char_hex(p[0]) << 12 | char_hex(p[1]) << 8 | char_hex(p[2]) << 4 | char_hex(p[3]);
}

static char *put_code(char *to, uint32_t c)
{
    unsigned char u[4];
    size_t n = put_utf8(u, c);
    memcpy(to, u, n);
    return to + n;
}

/* One escape; `p` is behind its backslash and moves on. */
static char *unescape_one(char *to, const char **p, const char *end, bool *lone)
{
    static const char names[] = "bfnrt", meant[] = "\b\f\n\r\t";
    char c = *(*p)++;
    if (c != 'u') {
        const char *at = strchr(names, c);
        *to++ = at == NULL ? c : meant[at - names];
        return to;
    }
    uint32_t code = hex4(*p);
    *p += 4;
    if (code < 0xd800 || code > 0xdfff)
        return put_code(to, code);
    bool pair = code < 0xdc00 && end - *p >= 6 && (*p)[0] == '\\' && (*p)[1] == 'u';
    uint32_t low = pair ? hex4(*p + 2) : 0;
    if (low < 0xdc00 || low > 0xdfff) {
        if (lone != NULL)
            *lone = true;
        return put_code(to, 0xfffd);
    }
    *p += 6;
    return put_code(to, 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00));
}

char *json_unescape(char *to, struct slice inside, bool *lone)
{
    const char *p = inside.p, *end = p + inside.n;
    while (p < end) {
        const char *stop = memchr(p, '\\', (size_t)(end - p));
        size_t n = (size_t)((stop == NULL ? end : stop) - p);
        memcpy(to, p, n);
        to += n;
        p += n;
        if (stop != NULL) {
            p++;
            to = unescape_one(to, &p, end, lone);
        }
    }
    return to;
}

/* --- encoding --- */

/* The length of the character at p, which is not ASCII; 0 where it is no UTF-8. */
static size_t utf8_length(const unsigned char *p, const unsigned char *end)
{
    uint8_t low, high;
    int left = utf8_lead(*p, &low, &high);
    if (left < 0 || end - p <= left || p[1] < low || p[1] > high)
        return 0;
    for (int i = 2; i <= left; i++) {
        if (p[i] < 0x80 || p[i] > 0xbf)
            return 0;
    }
    return (size_t)left + 1;
}

/* Writes to an odd character's place what stands for it; returns how many bytes it took. */
static size_t quote_odd(struct buf *out, const unsigned char *p, const unsigned char *end)
{
    static const char named[] = "\"\\\b\f\n\r\t", names[] = "\"\\bfnrt";
    size_t n = *p < 0x80 ? 1 : utf8_length(p, end);
    const char *at = *p == 0 || *p >= 0x80 ? NULL : strchr(named, *p);
    if (at != NULL)
        buf_add(out, (char[]){ '\\', names[at - named] }, 2);
    else if (*p < 0x20)
        buf_printf(out, "\\u%04x", (unsigned)*p);
    else if (n == 0)
        buf_add_text(out, "\xef\xbf\xbd");
    else
        buf_add(out, p, n);
    return n == 0 ? 1 : n;
}

void json_quote(struct buf *out, struct slice text)
{
    const unsigned char *p = (const unsigned char *)text.p, *end = p + text.n;
    char *to = buf_reserve(out, text.n + 2);
    to[0] = '"';
    if (text.n > 0 && plain_end(p, end) == end) { /* as most texts are */
        memcpy(to + 1, p, text.n);
        to[text.n + 1] = '"';
        out->n += text.n + 2;
        return;
    }
    out->n++;
    while (p < end) {
        const unsigned char *stop = plain_end(p, end);
        buf_add(out, p, (size_t)(stop - p));
        if ((p = stop) == end)
            break;
        p += quote_odd(out, p, end);
    }
    buf_add(out, "\"", 1);
}
