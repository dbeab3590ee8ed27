/* Event streams: any split gives the same events with the same data at the same places. */
#include "fuzz.h"
#include "llm_peek.h"
#include "sse.h"

struct run {
    struct buf said, data;
    uint64_t end;
};

static void on_data(void *arg, struct slice piece)
{
    buf_add_slice(&((struct run *)arg)->data, piece);
}

static void on_event(void *arg, const struct sse_event *e)
{
    struct run *r = arg;
    CHECK(e->start >= r->end && e->start < e->end && e->name.n <= SSE_NAME);
    r->end = e->end;
    buf_printf(&r->said, "%llu-%llu %.*s: ", (unsigned long long)e->start,
               (unsigned long long)e->end, (int)e->name.n, e->name.p);
    buf_add_slice(&r->said, buf_slice(&r->data));
    buf_add_text(&r->said, "\n");
    buf_clear(&r->data);
}

static void read_stream(struct run *r, struct slice input, enum fuzz_cut cut)
{
    *r = (struct run){ .end = 0 };
    struct sse s;
    sse_init(&s, on_data, on_event, r);
    struct fuzz_random random = fuzz_random(input);
    struct slice piece, rest = input;
    char *hold = NULL;
    while ((piece = fuzz_piece(&rest, cut, &random, &hold)).n > 0) {
        sse_feed(&s, piece);
        CHECK(s.offset == input.n - rest.n);
        CHECK(sse_pending(&s) <= s.offset && sse_pending(&s) >= r->end);
    }
    free(hold);
    sse_end(&s);
    buf_printf(&r->said, "offset %llu\n", (unsigned long long)s.offset);
}

/* What a peek says does not depend on the split either. */
static void peek(struct buf *said, struct slice input, enum fuzz_cut cut)
{
    struct llm_peek p;
    llm_peek_init(&p);
    struct fuzz_random random = fuzz_random(input);
    struct slice piece, rest = input;
    char *hold = NULL;
    enum llm_peeked found = LLM_PEEK_MORE;
    while (found == LLM_PEEK_MORE && (piece = fuzz_piece(&rest, cut, &random, &hold)).n > 0)
        found = llm_peek_feed(&p, piece);
    free(hold);
    buf_printf(said, "peek %d %.*s\n", found, (int)p.code.n, p.code.p == NULL ? "" : p.code.p);
    llm_peek_deinit(&p);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    struct slice input = { (const char *)bytes, n };
    struct run first, other;
    read_stream(&first, input, FUZZ_WHOLE);
    peek(&first.said, input, FUZZ_WHOLE);
    for (enum fuzz_cut cut = FUZZ_BYTES; cut < FUZZ_CUTS; cut++) {
        read_stream(&other, input, cut);
        peek(&other.said, input, cut);
        fuzz_same(&first.said, &other.said, "two splits of an event stream");
        buf_deinit(&other.said);
        buf_deinit(&other.data);
    }
    buf_deinit(&first.said);
    buf_deinit(&first.data);
    return 0;
}
