/* See json.h. The state is a handful of bytes: what is expected next, a bit per open container, and
 * where inside a string, a number or a literal the last piece of bytes ended. */
#include "json_scan.h"

enum { MINUS, ZERO, WHOLE, DOT, FRACTION, EXP, EXP_SIGN, EXP_DIGITS }; /* sub, in a number */

int json_refuse(struct json *j, uint64_t offset, const char *why)
{
    j->fault = why;
    j->offset = offset;
    return j->result = -1;
}

int json_refuse_here(struct json *j, const struct json_input *in, const char *why)
{
    return json_refuse(j, json_here(j, in), why);
}

/* The current scalar up to `end`, or the bracket there. */
static struct json_event event(const struct json *j, enum json_type type, uint64_t end)
{
    bool text = type == JSON_KEY || type == JSON_STRING || type == JSON_NUMBER;
    uint64_t decoded = text ? j->decoded : 0;
    return (struct json_event){
        .type = type,
        .depth = j->depth,
        .start = j->start,
        .end = end,
        .text = { j->capture, decoded < JSON_CAPTURE ? (size_t)decoded : JSON_CAPTURE },
        .whole = decoded <= JSON_CAPTURE,
        .decoded = decoded,
    };
}

int json_emit(struct json *j, enum json_type type, uint64_t end)
{
    struct json_event e = event(j, type, end);
    int rc = j->on_event(j->arg, &e);
    if (rc != 0) {
        j->offset = end;
        j->result = rc;
    }
    return rc;
}

/* What c makes of a number that stands at sub; -1 where it does not belong to it. */
static int number_step(int sub, unsigned char c)
{
    bool digit = c >= '0' && c <= '9', e = c == 'e' || c == 'E';
    switch (sub) {
    case MINUS: return c == '0' ? ZERO : digit ? WHOLE : -1;
    case ZERO: return c == '.' ? DOT : e ? EXP : -1;
    case WHOLE: return digit ? WHOLE : c == '.' ? DOT : e ? EXP : -1;
    case DOT: return digit ? FRACTION : -1;
    case FRACTION: return digit ? FRACTION : e ? EXP : -1;
    case EXP: return digit ? EXP_DIGITS : c == '+' || c == '-' ? EXP_SIGN : -1;
    default: return digit ? EXP_DIGITS : -1;
    }
}

static bool number_complete(int sub)
{
    return sub == ZERO || sub == WHOLE || sub == FRACTION || sub == EXP_DIGITS;
}

static int in_number(struct json *j, struct json_input *in)
{
    const unsigned char *first = in->p;
    int next = j->sub;
    while (in->p < in->end && (next = number_step(j->sub, *in->p)) >= 0) {
        j->sub = (uint8_t)next;
        in->p++;
    }
    json_take(j, first, (size_t)(in->p - first));
    if (in->p == in->end)
        return 0;
    if (j->sub == ZERO && *in->p >= '0' && *in->p <= '9')
        return json_refuse_here(j, in, "leading zero in a number");
    if (!number_complete(j->sub))
        return json_refuse_here(j, in, "a digit is missing in a number");
    j->state = JSON_AT_AFTER;
    return json_emit(j, JSON_NUMBER, json_here(j, in));
}

static int in_literal(struct json *j, struct json_input *in)
{
    if ((char)*in->p != j->literal[j->sub])
        return json_refuse_here(j, in, "unknown literal");
    in->p++;
    if (j->literal[++j->sub] != '\0')
        return 0;
    j->state = JSON_AT_AFTER;
    char c = j->literal[0];
    return json_emit(j, c == 't' ? JSON_TRUE : c == 'f' ? JSON_FALSE : JSON_NULL, json_here(j, in));
}

static bool in_object(const struct json *j)
{
    return j->depth > 0 && (j->stack[(j->depth - 1) / 8] >> (j->depth - 1) % 8 & 1) != 0;
}

static int open_container(struct json *j, struct json_input *in, bool object)
{
    if (j->depth == JSON_DEPTH)
        return json_refuse_here(j, in, "nested too deeply");
    in->p++;
    int rc = json_emit(j, object ? JSON_OBJECT : JSON_ARRAY, json_here(j, in));
    uint8_t bit = (uint8_t)(1u << j->depth % 8), *byte = &j->stack[j->depth / 8];
    *byte = object ? *byte | bit : *byte & (uint8_t)~bit;
    j->depth++;
    j->state = object ? JSON_AT_FIRST_KEY : JSON_AT_FIRST_ELEMENT;
    return rc;
}

static int close_container(struct json *j, struct json_input *in)
{
    bool object = in_object(j);
    in->p++;
    j->depth--;
    j->state = JSON_AT_AFTER;
    return json_emit(j, object ? JSON_OBJECT_END : JSON_ARRAY_END, json_here(j, in));
}

static int begin_value(struct json *j, struct json_input *in)
{
    unsigned char c = *in->p;
    if (c == '{' || c == '[')
        return open_container(j, in, c == '{');
    if (c == '-' || (c >= '0' && c <= '9')) {
        j->state = JSON_IN_NUMBER;
        j->sub = c == '-' ? MINUS : c == '0' ? ZERO : WHOLE;
        j->decoded = 0;
        json_take(j, in->p++, 1);
        return 0;
    }
    if (c == '"') {
        in->p++;
        return json_begin_string(j, false);
    }
    if (c != 't' && c != 'f' && c != 'n')
        return json_refuse_here(j, in, "a value is expected");
    j->literal = c == 't' ? "true" : c == 'f' ? "false" : "null";
    j->state = JSON_IN_LITERAL;
    j->sub = 0;
    return 0;
}

static int after_value(struct json *j, struct json_input *in)
{
    unsigned char c = *in->p;
    if (j->depth == 0)
        return json_refuse_here(j, in, "more follows the value");
    if (c == (in_object(j) ? '}' : ']'))
        return close_container(j, in);
    if (c != ',')
        return json_refuse_here(j, in,
                                in_object(j) ? "',' or '}' is expected" : "',' or ']' is expected");
    j->state = in_object(j) ? JSON_AT_NEXT_KEY : JSON_AT_VALUE;
    in->p++;
    return 0;
}

/* Between scalars: white space, brackets, commas, colons and the first byte of what comes next. */
static int structure(struct json *j, struct json_input *in)
{
    unsigned char c = *in->p;
    if (c == ' ' || c == '\t' || c == '\n' || c == '\r') {
        in->p++;
        return 0;
    }
    j->start = json_here(j, in);
    if (j->state == JSON_AT_AFTER)
        return after_value(j, in);
    if (j->state == JSON_AT_COLON) {
        if (c != ':')
            return json_refuse_here(j, in, "':' is expected");
        j->state = JSON_AT_VALUE;
        in->p++;
        return 0;
    }
    if ((j->state == JSON_AT_FIRST_ELEMENT && c == ']') ||
        (j->state == JSON_AT_FIRST_KEY && c == '}'))
        return close_container(j, in);
    if (j->state == JSON_AT_VALUE || j->state == JSON_AT_FIRST_ELEMENT)
        return begin_value(j, in);
    if (c != '"')
        return json_refuse_here(j, in, "a member's name is expected");
    in->p++;
    return json_begin_string(j, true);
}

void json_init(struct json *j, int (*on_event)(void *, const struct json_event *), void *arg)
{
    memset(j, 0, offsetof(struct json, capture));
    j->on_event = on_event;
    j->arg = arg;
    j->state = JSON_AT_VALUE;
}

static int step(struct json *j, struct json_input *in)
{
    switch (j->state) {
    case JSON_IN_STRING: return json_in_string(j, in);
    case JSON_IN_NUMBER: return in_number(j, in);
    case JSON_IN_LITERAL: return in_literal(j, in);
    default: return structure(j, in);
    }
}

int json_feed(struct json *j, const char *bytes, size_t n)
{
    if (j->result != 0 || n == 0)
        return j->result;
    const unsigned char *first = (const unsigned char *)bytes;
    struct json_input in = { first, first + n, first };
    while (in.p < in.end) {
        int rc = step(j, &in);
        if (rc != 0)
            return rc;
    }
    j->offset += n;
    return 0;
}

int json_finish(struct json *j)
{
    if (j->result != 0)
        return j->result;
    if (j->state == JSON_IN_NUMBER && j->depth == 0 && number_complete(j->sub)) {
        j->state = JSON_AT_AFTER;
        return json_emit(j, JSON_NUMBER, j->offset);
    }
    if (j->state != JSON_AT_AFTER || j->depth > 0)
        return json_refuse(j, j->offset, "the text ends too early");
    return 0;
}

const char *json_fault(const struct json *j)
{
    return j->fault;
}

bool json_partial(const struct json *j, struct json_event *e)
{
    if (j->state != JSON_IN_STRING || j->key)
        return false;
    *e = event(j, JSON_STRING, j->offset);
    return true;
}
