/* See reuse.h. */
#include "reuse.h"

#include "chars.h"

enum { KEEP_S_MAX = 100000 }; /* more is as good as for ever */

uint64_t reuse_keep_ms(const struct headers *answer)
{
    struct slice v = headers_get_id(answer, HEADER_KEEP_ALIVE);
    struct slice name = SLICE("timeout=");
    for (size_t i = 0; i + name.n < v.n; i++) {
        uint64_t s = 0;
        if (!slice_ieq((struct slice){ v.p + i, name.n }, name))
            continue;
        for (i += name.n; i < v.n && char_is(v.p[i], CHAR_DIGIT) && s < KEEP_S_MAX; i++)
            s = s * 10 + (uint64_t)(v.p[i] - '0');
        return s <= 1 ? 1 : (s - 1) * 1000;
    }
    return 0;
}

bool reuse_may_retry(uint64_t uses, struct slice method, enum framing framing)
{
    return uses > 1 && framing == FRAMING_NONE && message_idempotent(method);
}
