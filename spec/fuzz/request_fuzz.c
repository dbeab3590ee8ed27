/* Requests: any split gives the same messages, and what is accepted, written again as it goes to an
 * origin, is read as the same message and is written the same way from then on. */
#include "wire.h"

/* HTTP/1.0 may come without a Host, HTTP/1.1 may not. */
static bool any_without_host(const struct wire *w)
{
    return memmem(w->said.p, w->said.n, " @ framing ", 11) != NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    struct slice input = { (const char *)bytes, n };
    struct wire first, other;
    wire_read(&first, true, "", input, FUZZ_WHOLE);
    for (enum fuzz_cut cut = FUZZ_BYTES; cut < FUZZ_CUTS; cut++) {
        wire_read(&other, true, "", input, cut);
        fuzz_same(&first.said, &other.said, "two splits of requests");
        wire_deinit(&other);
    }
    if (first.whole && first.heads > 0 && !any_without_host(&first)) {
        wire_read(&other, true, "", buf_slice(&first.again), FUZZ_PIECES);
        fuzz_same(&first.said, &other.said, "requests and what is sent on");
        fuzz_same(&first.again, &other.again, "what is sent on and the same again");
        wire_deinit(&other);
    }
    wire_deinit(&first);
    return 0;
}
