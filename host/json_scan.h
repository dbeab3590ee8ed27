/* Inside the scanner: what json.c (structure, numbers, literals) and json_string.c share. */
#ifndef TOLLGATE_JSON_SCAN_H
#define TOLLGATE_JSON_SCAN_H

#include "json.h"

/* What is expected next. */
enum json_state {
    JSON_AT_VALUE,
    JSON_AT_FIRST_ELEMENT,
    JSON_AT_FIRST_KEY,
    JSON_AT_NEXT_KEY,
    JSON_AT_COLON,
    JSON_AT_AFTER,
    JSON_IN_STRING,
    JSON_IN_NUMBER,
    JSON_IN_LITERAL
};

/* The bytes of one call of json_feed, and how far they are used up. */
struct json_input {
    const unsigned char *p, *end, *first;
};

static inline uint64_t json_here(const struct json *j, const struct json_input *in)
{
    return j->offset + (uint64_t)(in->p - in->first);
}

/* Both end the scan with -1. */
int json_refuse(struct json *j, uint64_t offset, const char *why);
int json_refuse_here(struct json *j, const struct json_input *in, const char *why);
int json_emit(struct json *j, enum json_type type, uint64_t end);

/* Adds bytes to the text of the current scalar: all are counted, the first are kept. */
void json_take(struct json *j, const void *p, size_t n);
int json_begin_string(struct json *j, bool key);
int json_in_string(struct json *j, struct json_input *in);

#endif
