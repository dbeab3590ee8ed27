/* The framing of chunked bodies, checked byte by byte (RFC 9112, section 7.1), since http_parser
 * takes whatever stands between a chunk's size and its line end. The input is cut into segments:
 * those with sizes, line ends and data go on to http_parser; extensions and trailer fields, once
 * checked, are dropped. */
#ifndef TOLLGATE_CHUNKED_H
#define TOLLGATE_CHUNKED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct chunked {
    int state;       /* of the automaton in chunked.c */
    int digits;      /* of the size being read */
    uint64_t left;   /* bytes of data left in this chunk */
    size_t overhead; /* bytes of extensions that no data has paid for yet */
    size_t trailer;  /* bytes of the trailer section so far */
    size_t trailer_max;
    uint32_t fields, fields_max; /* trailer fields */
    int status;                  /* of a fault: 400 or 431 */
    const char *fault;           /* static text */
};

/* The limits are those of a head: a trailer section is as large as a head may be. */
void chunked_init(struct chunked *c, size_t trailer_max, uint32_t fields_max);
/* The length of the next segment, at least 1 where n > 0, or 0 with a fault. *feed tells whether
 * http_parser is to see it; its data, if any, is at its end. Not to be called once the end was
 * seen. */
size_t chunked_next(struct chunked *c, const char *bytes, size_t n, bool *feed);
bool chunked_ended(const struct chunked *c);

#endif
