/* What a head must be before and after http_parser has read it: the grammar of its lines,
 * checked on the bytes, and the rules about its fields, checked on the list that http_parser
 * delivered. Part of parse. */
#ifndef TOLLGATE_PARSE_HEAD_H
#define TOLLGATE_PARSE_HEAD_H

#include "message.h"
#include "parse.h"

/* status is 0 where nothing is wrong. */
struct parse_fault {
    int status;
    const char *text; /* static */
};

struct parse_head {
    struct slice method, target; /* of a request; part of the head; empty where not come to */
    uint32_t fields;
};

/* Checks a whole head, from the start line to the empty line (RFC 9112, sections 2 to 5). HTAB
 * at a value's end becomes SP in place. */
struct parse_fault parse_head_request(char *head, const struct parse_limits *limits,
                                      struct parse_head *out);
struct parse_fault parse_head_response(char *head, const struct parse_limits *limits,
                                       struct parse_head *out);

/* Derives all of a message that follows from its fields, which are in it with method, target as
 * received, minor, status and reason. For a response, `declared` is the framing that its fields
 * name, which `framing` is not after HEAD and in 1xx, 204 and 304. */
struct parse_fault parse_rules_request(struct request *r, const struct parse_limits *limits);
struct parse_fault parse_rules_response(struct response *r, bool head, enum framing *declared);

#endif
