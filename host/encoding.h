/* Bytes as text: hexadecimal, base64 (RFC 4648, section 4) and base64url (section 5). Decoders take
 * what the encoders give and little else: digits of hexadecimal in either case, base64url with or
 * without its padding. */
#ifndef TOLLGATE_ENCODING_H
#define TOLLGATE_ENCODING_H

#include <stdint.h>

#include "slice.h"

/* Each writes to out and returns how many bytes; `in` and `out` do not overlap. */

/* Lower case; 2 * in.n bytes. */
size_t encoding_hex(struct slice in, char *out);
/* (in.n + 2) / 3 * 4 bytes, or up to that many where `url`, which leaves the padding out. */
size_t encoding_base64(struct slice in, bool url, char *out);

enum { ENCODING_INVALID = -1 };

/* in.n / 2 bytes, or ENCODING_INVALID. */
long encoding_hex_decode(struct slice in, char *out);
/* Up to in.n / 4 * 3 + 2 bytes, or ENCODING_INVALID: other characters (white space too), missing or
 * wrong padding, a last character with bits that no byte takes (two texts would stand for the same
 * bytes). */
long encoding_base64_decode(struct slice in, bool url, char *out);

#endif
