/* Header fields, one a line as "name: value": what is made of them for an origin can be written on
 * a wire, names nobody that the rules do not believe, and holds nothing of one connection. Besides,
 * what reads single values: traces, Retry-After, formats of the access log, encodings. */
#include "access_format.h"
#include "encoding.h"
#include "forwarded.h"
#include "fuzz.h"
#include "headers.h"
#include "retry.h"
#include "trace.h"

static void read_fields(struct headers *h, struct slice rest)
{
    while (rest.n > 0 && h->n < 64) {
        const char *lf = memchr(rest.p, '\n', rest.n);
        struct slice line = { rest.p, lf == NULL ? rest.n : (size_t)(lf - rest.p) };
        size_t taken = line.n + (lf != NULL);
        const char *colon = memchr(line.p, ':', line.n);
        if (colon != NULL) {
            struct slice name = { line.p, (size_t)(colon - line.p) };
            struct slice value = slice_trim((struct slice){ colon + 1, line.n - name.n - 1 });
            if (header_name_valid(name) && header_value_valid(value))
                headers_add(h, name, value);
        }
        rest.p += taken;
        rest.n -= taken;
    }
}

static void check_fields(const struct headers *h)
{
    for (uint32_t i = 0; i < h->n; i++) {
        CHECK(header_name_valid(h->v[i].name) && header_value_valid(h->v[i].value));
        CHECK(h->v[i].id == header_id(h->v[i].name));
    }
}

static uint64_t any(void)
{
    return 0x1234567890abcdef;
}

static bool hex(const char *text, size_t n)
{
    return strlen(text) == n && strspn(text, "0123456789abcdef") == n;
}

static void trace(struct headers *h)
{
    struct trace t, again;
    memset(&t, 0, sizeof t);
    if (trace_read(h, &t) != 0) {
        trace_new(&t, UINT64_MAX, any);
        CHECK(t.state.p == NULL && t.parent[0] == 0);
    } else {
        CHECK(hex(t.parent, TRACE_SPAN) && t.state.n <= TRACE_STATE);
    }
    trace_span(t.span, any);
    CHECK(hex(t.id, TRACE_ID) && hex(t.span, TRACE_SPAN));
    trace_write(&t, t.span, h);
    check_fields(h);
    memset(&again, 0, sizeof again);
    CHECK(trace_read(h, &again) == 0);
    CHECK(strcmp(again.id, t.id) == 0 && strcmp(again.parent, t.span) == 0 &&
          again.sampled == t.sampled && slice_eq(again.state, t.state));
}

static void forwarded(struct headers *h, enum forwarded_form read, unsigned form)
{
    struct cidr net;
    struct ip inside, outside;
    CHECK(cidr_parse(SLICE("10.0.0.0/8"), &net) == 0);
    CHECK(ip_parse(SLICE("10.1.1.1"), &inside) == 0);
    CHECK(ip_parse(SLICE("192.0.2.1"), &outside) == 0);
    struct forwarded_rules rules = { { &net, 1, false }, read, form };
    struct forwarded_hop hop = { SLICE("192.0.2.1"), SLICE("http"), SLICE("a.example") };
    struct forwarded f;
    forwarded_read(&rules, &outside, h, &f);
    CHECK(!f.trusted && f.client.size == 0 && f.proto.p == NULL && f.host.p == NULL);
    forwarded_read(&rules, &inside, h, &f);
    CHECK(f.trusted && f.port >= 0 && f.port <= 65535);
    CHECK(header_value_valid(f.proto) && header_value_valid(f.host));
    forwarded_write(&rules, &f, &hop, h);
    check_fields(h);
}

static void hop_by_hop(struct headers *h)
{
    static const enum header_id gone[] = { HEADER_CONNECTION,       HEADER_KEEP_ALIVE,
                                           HEADER_PROXY_CONNECTION, HEADER_TE,
                                           HEADER_TRAILER,          HEADER_TRANSFER_ENCODING,
                                           HEADER_UPGRADE };
    bool host = headers_get_id(h, HEADER_HOST).p != NULL;
    bool length = headers_get_id(h, HEADER_CONTENT_LENGTH).p != NULL;
    headers_remove_hop_by_hop(h);
    for (size_t i = 0; i < sizeof gone / sizeof *gone; i++)
        CHECK(headers_get_id(h, gone[i]).p == NULL);
    CHECK(host == (headers_get_id(h, HEADER_HOST).p != NULL));
    CHECK(length == (headers_get_id(h, HEADER_CONTENT_LENGTH).p != NULL));
    uint32_t n = h->n;
    headers_remove_hop_by_hop(h);
    CHECK(n == h->n);
    check_fields(h);
}

static void with_fields(struct slice input, int what)
{
    struct arena a;
    struct headers h;
    arena_init(&a);
    headers_init(&h, &a);
    read_fields(&h, input);
    CHECK(retry_after_ms(&h, 1700000000000) >= -1);
    if (what == 0)
        trace(&h);
    else if (what == 1)
        forwarded(&h, FORWARDED_X, FORWARDED_X | FORWARDED_RFC7239);
    else if (what == 2)
        forwarded(&h, FORWARDED_RFC7239, FORWARDED_RFC7239);
    else
        hop_by_hop(&h);
    arena_deinit(&a);
}

static void log_format(struct slice input)
{
    struct arena a;
    struct access_format format;
    struct buf fault, value;
    arena_init(&a);
    buf_init(&fault);
    buf_init(&value);
    CHECK((access_format_parse(&a, input, &format, &fault) == 0) == (fault.n == 0));
    access_format_value(&value, input);
    for (size_t i = 0; i < value.n; i++)
        CHECK(value.p[i] >= ' ' && value.p[i] < 0x7f && value.p[i] != '"');
    buf_deinit(&fault);
    buf_deinit(&value);
    arena_deinit(&a);
}

static void encodings(struct slice input)
{
    char *out = malloc(input.n * 2 + 8), *again = malloc(input.n * 4 + 8);
    CHECK(out != NULL && again != NULL);
    for (int url = 0; url < 2; url++) {
        long n = encoding_base64_decode(input, url != 0, out);
        if (n < 0)
            continue;
        size_t m = encoding_base64((struct slice){ out, (size_t)n }, url != 0, again);
        CHECK(m <= input.n && memcmp(again, input.p, m) == 0);
    }
    size_t digits = encoding_hex(input, out);
    CHECK(encoding_hex_decode((struct slice){ out, digits }, again) == (long)input.n);
    CHECK(input.n == 0 || memcmp(again, input.p, input.n) == 0);
    free(out);
    free(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    struct slice input = { (const char *)bytes, n };
    for (int what = 0; what < 4; what++)
        with_fields(input, what);
    log_format(input);
    encodings(input);
    return 0;
}
