/* Responses, to GET and to HEAD: any split gives the same messages, and what is accepted, written
 * again as it goes to a client, is read as the same message. */
#include "wire.h"

static void try_method(const char *method, struct slice input)
{
    struct wire first, other;
    wire_read(&first, false, method, input, FUZZ_WHOLE);
    for (enum fuzz_cut cut = FUZZ_BYTES; cut < FUZZ_CUTS; cut++) {
        wire_read(&other, false, method, input, cut);
        fuzz_same(&first.said, &other.said, "two splits of responses");
        wire_deinit(&other);
    }
    if (first.whole && first.heads > 0) {
        wire_read(&other, false, method, buf_slice(&first.again), FUZZ_PIECES);
        fuzz_same(&first.said, &other.said, "responses and what is relayed");
        fuzz_same(&first.again, &other.again, "what is relayed and the same again");
        wire_deinit(&other);
    }
    wire_deinit(&first);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    struct slice input = { (const char *)bytes, n };
    try_method("GET", input);
    try_method("HEAD", input);
    return 0;
}
