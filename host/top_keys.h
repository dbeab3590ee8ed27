/* Keys out of the bytes that a terminal sends, fed any split. */
#ifndef TOLLGATE_TOP_KEYS_H
#define TOLLGATE_TOP_KEYS_H

enum top_key {
    TOP_KEY_NONE = 0, /* more bytes are to come, or one that means nothing here */
    TOP_KEY_UP = 256, /* below: the byte itself */
    TOP_KEY_DOWN,
    TOP_KEY_LEFT,
    TOP_KEY_RIGHT,
    TOP_KEY_PAGE_UP,
    TOP_KEY_PAGE_DOWN,
    TOP_KEY_HOME,
    TOP_KEY_END
};

struct top_keys {
    enum { TOP_KEYS_PLAIN, TOP_KEYS_ESCAPE, TOP_KEYS_SEQUENCE } state;
    int number; /* of a sequence such as ESC [ 5 ~ */
};

/* Zeroed at first. */
int top_keys_byte(struct top_keys *k, unsigned char c);

#endif
