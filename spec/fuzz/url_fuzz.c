/* Paths and targets: what is normalised holds no dot segment, no empty one and no byte with two
 * readings, and is its own normal form; URLs and authorities that are accepted are read the same
 * way again. */
#include "chars.h"
#include "fuzz.h"
#include "url.h"

/* The segment [p, p + n), with what is encoded taken for what it stands for. */
static void check_segment(struct slice s)
{
    size_t dots = 0, others = 0;
    for (size_t i = 0; i < s.n; i++) {
        char c = s.p[i];
        if (c == '%') {
            CHECK(s.n - i >= 3 && char_is(s.p[i + 1], CHAR_HEX) && char_is(s.p[i + 2], CHAR_HEX));
            CHECK(s.p[i + 1] < 'a' && s.p[i + 2] < 'a');
            c = (char)(char_hex(s.p[i + 1]) * 16 + char_hex(s.p[i + 2]));
            i += 2;
            CHECK(!char_is(c, CHAR_UNRESERVED));
        } else {
            CHECK(char_is(c, CHAR_PATH));
        }
        CHECK(c != 0 && c != '\\' && (unsigned char)c >= ' ' && c != 0x7f);
        dots += c == '.';
        others += c != '.';
    }
    CHECK(others > 0 || dots == 0 || dots > 2);
}

static void check_path(struct slice path)
{
    CHECK(path.n > 0 && path.p[0] == '/');
    size_t start = 1;
    for (size_t i = 1; i <= path.n; i++) {
        if (i < path.n && path.p[i] != '/')
            continue;
        CHECK(i > start || i == path.n); /* no empty one but behind the last slash */
        check_segment((struct slice){ path.p + start, i - start });
        start = i + 1;
    }
}

static void normalise(struct arena *a, struct slice input)
{
    struct slice once, twice;
    if (url_normalise(a, input, &once) != 0)
        return;
    check_path(once);
    CHECK(once.n <= input.n);
    CHECK(url_normalise(a, once, &twice) == 0 && slice_eq(once, twice));
}

static void authority(struct slice input)
{
    struct slice host;
    int port;
    if (!url_authority(input, &host, &port))
        return;
    CHECK(host.n > 0 && port >= 0 && port <= 65535);
    CHECK(host.p >= input.p && host.p + host.n <= input.p + input.n);
    for (size_t i = 0; i < input.n; i++)
        CHECK(input.p[i] > ' ' && input.p[i] < 0x7f && input.p[i] != '@' && input.p[i] != '/');
}

static void whole(struct arena *a, struct slice input)
{
    struct url one, two;
    if (url_parse(a, input, &one) != NULL)
        return;
    if (one.unix_path.p != NULL) {
        CHECK(one.unix_path.n > 0);
        return;
    }
    CHECK(one.port > 0 && one.port <= 65535 && one.host.n > 0);
    CHECK(one.path.n == 0 || one.path.p[0] == '/');
    if (one.path.n > 0)
        check_path(one.path);
    struct slice again =
        arena_printf(a, "%s://%.*s%.*s", one.tls ? "https" : "http", (int)one.authority.n,
                     one.authority.p, (int)one.path.n, one.path.n > 0 ? one.path.p : "");
    CHECK(url_parse(a, again, &two) == NULL);
    CHECK(two.tls == one.tls && two.port == one.port && slice_eq(two.host, one.host) &&
          slice_eq(two.path, one.path) && slice_eq(two.authority, one.authority));
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    struct slice input = { (const char *)bytes, n };
    struct arena a;
    arena_init(&a);
    normalise(&a, input);
    authority(input);
    whole(&a, input);
    arena_deinit(&a);
    return 0;
}
