/* Chunked bodies: any split gives the same bytes, and what is accepted is what a decoder that is as
 * lenient as can be makes of it, up to the same byte. */
#include "chars.h"
#include "wire.h"

static const char head[] = "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n";

/* Behind the line that begins at p; NULL where it has no end. */
static const char *line_end(const char *p, const char *end)
{
    const char *crlf = memmem(p, (size_t)(end - p), "\r\n", 2);
    return crlf == NULL ? NULL : crlf + 2;
}

/* Where the message ends, its data appended to out; NULL where it does not end. */
static const char *decode(const char *p, const char *end, struct buf *out)
{
    for (;;) {
        size_t size = 0;
        for (; p < end && char_is(*p, CHAR_HEX); p++)
            size = size * 16 + char_hex(*p);
        p = line_end(p, end);
        if (p == NULL)
            return NULL;
        if (size == 0)
            break;
        if (size > (size_t)(end - p) || (size_t)(end - p) - size < 2)
            return NULL;
        buf_add(out, p, size);
        p += size + 2;
    }
    for (;;) {
        const char *line = p;
        p = line_end(p, end);
        if (p == NULL || p == line + 2)
            return p;
    }
}

struct one {
    struct buf body;
    bool ended;
};

static int on_head(void *arg)
{
    (void)arg;
    return 0;
}

static int on_body(void *arg, struct slice piece)
{
    buf_add_slice(&((struct one *)arg)->body, piece);
    return 0;
}

static void on_end(void *arg)
{
    ((struct one *)arg)->ended = true;
}

static const struct parse_limits limits = { .head = 2048, .url = 512, .fields = 20 };
static const struct parse_events events = { on_head, on_body, on_end };

/* How many bytes of the body the message took, and the status. */
static int read_one(struct one *one, struct slice input, enum fuzz_cut cut, size_t *taken)
{
    struct request request;
    struct arena arena;
    arena_init(&arena);
    struct parser *parser = parser_new_request(&limits, &events, one);
    parser_next_request(parser, &request, &arena);
    size_t used;
    int status = parser_feed(parser, head, sizeof head - 1, &used);
    CHECK(status == 0 && used == sizeof head - 1);
    struct fuzz_random random = fuzz_random(input);
    struct slice piece, rest = input;
    char *hold = NULL;
    *taken = 0;
    while (status == 0 && !one->ended && (piece = fuzz_piece(&rest, cut, &random, &hold)).n > 0) {
        status = parser_feed(parser, piece.p, piece.n, &used);
        CHECK(used <= piece.n && (used == piece.n || status != 0 || one->ended));
        *taken += used;
    }
    free(hold);
    parser_free(parser);
    arena_deinit(&arena);
    return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    struct slice input = { (const char *)bytes, n };
    struct buf want;
    buf_init(&want);
    int first = 0;
    size_t first_taken = 0;
    bool first_ended = false;
    const char *end = decode(input.p, input.p + n, &want);
    for (enum fuzz_cut cut = FUZZ_WHOLE; cut < FUZZ_CUTS; cut++) {
        struct one one = { .ended = false };
        size_t taken;
        int status = read_one(&one, input, cut, &taken);
        if (cut == FUZZ_WHOLE) {
            first = status;
            first_taken = taken;
            first_ended = one.ended;
        }
        CHECK(status == first && one.ended == first_ended);
        if (one.ended) {
            CHECK(end != NULL && taken == first_taken && taken == (size_t)(end - input.p));
            fuzz_same(&one.body, &want, "the body and that of the lenient decoder");
        }
        buf_deinit(&one.body);
    }
    buf_deinit(&want);
    return 0;
}
