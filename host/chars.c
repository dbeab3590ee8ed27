/* See chars.h. */
#include "chars.h"

enum {
    T = CHAR_TOKEN,
    V = CHAR_VALUE,
    Q = CHAR_VALUE | CHAR_QUERY,
    P = CHAR_VALUE | CHAR_QUERY | CHAR_PATH,
    U = CHAR_TOKEN | CHAR_VALUE | CHAR_QUERY | CHAR_PATH | CHAR_UNRESERVED,
    H = CHAR_HEX,
    D = CHAR_DIGIT
};

const unsigned char char_class[256] = {
    ['\t'] = V,        [' '] = V,
    ['!'] = P | T,     ['"'] = V,
    ['#'] = V | T,     ['$'] = P | T,
    ['%'] = V | T,     ['&'] = P | T,
    ['\''] = P | T,    ['('] = P,
    [')'] = P,         ['*'] = P | T,
    ['+'] = P | T,     [','] = P,
    ['-'] = U,         ['.'] = U,
    ['/'] = P,         ['0' ... '9'] = U | H | D,
    [':'] = P,         [';'] = P,
    ['<'] = V,         ['='] = P,
    ['>'] = V,         ['?'] = Q,
    ['@'] = P,         ['A' ... 'F'] = U | H,
    ['G' ... 'Z'] = U, ['['] = Q,
    ['\\'] = Q,        [']'] = Q,
    ['^'] = Q | T,     ['_'] = U,
    ['`'] = Q | T,     ['a' ... 'f'] = U | H,
    ['g' ... 'z'] = U, ['{'] = Q,
    ['|'] = Q | T,     ['}'] = Q,
    ['~'] = U,         [0x80 ... 0xff] = V,
};
