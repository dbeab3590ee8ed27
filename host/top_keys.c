/* See top_keys.h. The sequences are those of ECMA-48 (5.4) as terminals use them: ESC [ A, ESC O A
 * in application mode, ESC [ 5 ~. */
#include "top_keys.h"

static int named(unsigned char last, int number)
{
    static const int tilde[] = { 0,
                                 TOP_KEY_HOME,
                                 0,
                                 0,
                                 TOP_KEY_END,
                                 TOP_KEY_PAGE_UP,
                                 TOP_KEY_PAGE_DOWN,
                                 TOP_KEY_HOME,
                                 TOP_KEY_END };
    switch (last) {
    case 'A': return TOP_KEY_UP;
    case 'B': return TOP_KEY_DOWN;
    case 'C': return TOP_KEY_RIGHT;
    case 'D': return TOP_KEY_LEFT;
    case 'H': return TOP_KEY_HOME;
    case 'F': return TOP_KEY_END;
    case 'Z': return '<'; /* tab backwards */
    case '~': return number < (int)(sizeof tilde / sizeof *tilde) ? tilde[number] : TOP_KEY_NONE;
    default: return TOP_KEY_NONE;
    }
}

int top_keys_byte(struct top_keys *k, unsigned char c)
{
    if (c == 0x1b) {
        *k = (struct top_keys){ .state = TOP_KEYS_ESCAPE };
        return TOP_KEY_NONE;
    }
    if (k->state == TOP_KEYS_ESCAPE && (c == '[' || c == 'O')) {
        k->state = TOP_KEYS_SEQUENCE;
        return TOP_KEY_NONE;
    }
    if (k->state != TOP_KEYS_SEQUENCE) {
        k->state = TOP_KEYS_PLAIN;
        return c;
    }
    if (c >= 0x20 && c < 0x40) {
        if (c >= '0' && c <= '9' && k->number < 1000)
            k->number = k->number * 10 + c - '0';
        return TOP_KEY_NONE;
    }
    k->state = TOP_KEYS_PLAIN;
    return c < 0x80 ? named(c, k->number) : TOP_KEY_NONE;
}
