/* Paths as they are matched and sent on, authorities, and the URLs of targets. */
#include "url.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

struct path_case {
    const char *in, *want; /* want is NULL for what is refused */
    size_t n;
};

#define PATH(in, want)                                                                             \
    {                                                                                              \
        in, want, sizeof(in) - 1                                                                   \
    }

static const struct path_case paths[] = {
    PATH("/", "/"),
    PATH("/a", "/a"),
    PATH("/a/", "/a/"),
    PATH("/v1/chat/completions", "/v1/chat/completions"),
    PATH("/a-b_c.d~e", "/a-b_c.d~e"),
    PATH("/!$&'()*+,;=:@", "/!$&'()*+,;=:@"),
    /* slashes */
    PATH("//", "/"),
    PATH("///", "/"),
    PATH("//a", "/a"),
    PATH("/a//b", "/a/b"),
    PATH("/a///b//", "/a/b/"),
    PATH("//evil.example/a", "/evil.example/a"),
    /* dots */
    PATH("/.", "/"),
    PATH("/./", "/"),
    PATH("/a/.", "/a/"),
    PATH("/a/./b", "/a/b"),
    PATH("/./a", "/a"),
    PATH("/a/..", "/"),
    PATH("/a/../", "/"),
    PATH("/a/../b", "/b"),
    PATH("/a/b/../c", "/a/c"),
    PATH("/a/b/../../c", "/c"),
    PATH("/a/b/c/../..", "/a/"),
    PATH("/a//../b", "/b"),
    PATH("/a/.//../b", "/b"),
    PATH("/...", "/..."),
    PATH("/.well-known/x", "/.well-known/x"),
    PATH("/..a", "/..a"),
    PATH("/a..", "/a.."),
    PATH("/.a/..b/c.", "/.a/..b/c."),
    PATH("/..", NULL),
    PATH("/../", NULL),
    PATH("/../a", NULL),
    PATH("/a/../..", NULL),
    PATH("/a/../../b", NULL),
    PATH("/./..", NULL),
    PATH("//..", NULL),
    /* encoded dots */
    PATH("/%2e", "/"),
    PATH("/%2E/a", "/a"),
    PATH("/a/%2e%2e", "/"),
    PATH("/a/%2e%2E/b", "/b"),
    PATH("/a/.%2e/b", "/b"),
    PATH("/a/%2e./b", "/b"),
    PATH("/%2e%2e", NULL),
    PATH("/%2e%2e/a", NULL),
    PATH("/a/%2e%2e/%2e%2e/b", NULL),
    PATH("/%2e%2e%2f", "/..%2F"),
    /* encoded, and staying so */
    PATH("/a%2fb", "/a%2Fb"),
    PATH("/a%2Fb", "/a%2Fb"),
    PATH("/%2f%2F", "/%2F%2F"),
    PATH("/a%20b", "/a%20b"),
    PATH("/%c3%a9", "/%C3%A9"),
    PATH("/%25", "/%25"),
    PATH("/%252e%252e/a", "/%252e%252e/a"),
    PATH("/%3f%23", "/%3F%23"),
    PATH("/%3b", "/%3B"),
    /* decoded */
    PATH("/a%7Eb", "/a~b"),
    PATH("/%61%62%43%30%2d%5f", "/abC0-_"),
    PATH("/v1/%63hat", "/v1/chat"),
    /* parameters on dots */
    PATH("/a;x=1/b", "/a;x=1/b"),
    PATH("/a/..;/b", NULL),
    PATH("/a/..;x=1/b", NULL),
    PATH("/a/.;/b", NULL),
    PATH("/a/..%3b/b", NULL),
    PATH("/a/%2e%2e;/b", NULL),
    PATH("/...;/b", "/...;/b"),
    /* refused */
    PATH("", NULL),
    PATH("a", NULL),
    PATH("*", NULL),
    PATH("/%", NULL),
    PATH("/%4", NULL),
    PATH("/%zz", NULL),
    PATH("/%2", NULL),
    PATH("/%2g", NULL),
    PATH("/a%", NULL),
    PATH("/%00", NULL),
    PATH("/a%00b", NULL),
    PATH("/%0a", NULL),
    PATH("/%0d", NULL),
    PATH("/%1f", NULL),
    PATH("/%7f", NULL),
    PATH("/%5c", NULL),
    PATH("/%5C..%5c", NULL),
    PATH("/\\", NULL),
    PATH("/..\\a", NULL),
    PATH("/a b", NULL),
    PATH("/a\tb", NULL),
    PATH("/a\0b", NULL),
    PATH("/a?b", NULL),
    PATH("/a#b", NULL),
    PATH("/\xc3\xa9", NULL),
    PATH("/\x7f", NULL),
    PATH("/<a>", NULL),
    PATH("/\"", NULL),
    PATH("/{a}", NULL),
    PATH("/a|b", NULL),
    PATH("/[a]", NULL),
    PATH("/^`", NULL),
};

static void normalises_paths(void **state)
{
    (void)state;
    struct arena a;
    arena_init(&a);
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        const struct path_case *c = &paths[i];
        struct slice in = { c->in, c->n }, out = { NULL, 0 }, again;
        int status = url_normalise(&a, in, &out);
        bool right =
            c->want == NULL ? status == -1 : status == 0 && slice_eq(out, slice_of(c->want));
        if (!right)
            fail_msg("%s gives %d \"%.*s\"", c->in, status, (int)out.n, out.n > 0 ? out.p : "");
        if (c->want == NULL)
            continue;
        assert_int_equal(url_normalise(&a, out, &again), 0);
        assert_true(slice_eq(out, again));
    }
    arena_deinit(&a);
}

static void copies_only_what_changes(void **state)
{
    (void)state;
    struct arena a;
    arena_init(&a);
    struct slice in = SLICE("/v1/chat/completions"), out;
    assert_int_equal(url_normalise(&a, in, &out), 0);
    assert_ptr_equal(out.p, in.p);
    assert_null(a.first);
    arena_deinit(&a);
}

/* Whatever is accepted is stable, and holds no segment that could climb. */
static void normalises_random_paths(void **state)
{
    (void)state;
    static const char *const parts[] = {
        "/", ".", "..", "a", "%2e", "%2f", "%2E", "%41", ";", "%25"
    };
    unsigned seed = 1;
    struct arena a;
    arena_init(&a);
    for (int round = 0; round < 20000; round++) {
        char text[64] = "/";
        for (int i = 0; i < 10; i++)
            strcat(text, parts[(seed = seed * 1103515245 + 12345) / 65536 % 10]);
        struct slice out, again;
        if (url_normalise(&a, slice_of(text), &out) != 0)
            continue;
        assert_int_equal(url_normalise(&a, out, &again), 0);
        assert_true(slice_eq(out, again));
        assert_true(out.n <= strlen(text) && out.p[0] == '/');
        assert_null(memmem(out.p, out.n, "//", 2));
        assert_null(memmem(out.p, out.n, "/../", 4));
        assert_false(slice_ends(out, SLICE("/..")));
        if (round % 100 == 0)
            arena_reset(&a);
    }
    arena_deinit(&a);
}

struct authority_case {
    const char *in, *host; /* host is NULL for what is refused */
    int port;
};

static const struct authority_case authorities[] = {
    { "a", "a", 0 },
    { "api.example.com", "api.example.com", 0 },
    { "a:80", "a", 80 },
    { "a:", "a", 0 },
    { "a:65535", "a", 65535 },
    { "a:00080", "a", 80 },
    { "127.0.0.1:8080", "127.0.0.1", 8080 },
    { "my_host-1.local", "my_host-1.local", 0 },
    { "[::1]", "::1", 0 },
    { "[::1]:443", "::1", 443 },
    { "[2001:db8::ffff:10.0.0.1]:1", "2001:db8::ffff:10.0.0.1", 1 },
    { "", NULL, 0 },
    { ":80", NULL, 0 },
    { "a:0", NULL, 0 },
    { "a:65536", NULL, 0 },
    { "a:99999999999999999999", NULL, 0 },
    { "a:8x", NULL, 0 },
    { "a:-1", NULL, 0 },
    { "a:80:80", NULL, 0 },
    { "a b", NULL, 0 },
    { "a,b", NULL, 0 },
    { "a/b", NULL, 0 },
    { "u@a", NULL, 0 },
    { "u:p@a", NULL, 0 },
    { "a%41", NULL, 0 },
    { "::1", NULL, 0 },
    { "[::1", NULL, 0 },
    { "[]", NULL, 0 },
    { "[::1]x", NULL, 0 },
    { "[::1%25eth0]", NULL, 0 },
    { "[v1.a]", NULL, 0 },
    { "[127.0.0.1]", NULL, 0 },
    { "\xc3\xa9", NULL, 0 },
};

static void splits_authorities(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof authorities / sizeof *authorities; i++) {
        const struct authority_case *c = &authorities[i];
        struct slice host;
        int port;
        bool valid = url_authority(slice_of(c->in), &host, &port);
        if (valid != (c->host != NULL))
            fail_msg("\"%s\" is %s", c->in, valid ? "accepted" : "refused");
        if (valid && (!slice_eq(host, slice_of(c->host)) || port != c->port))
            fail_msg("\"%s\" is split into \"%.*s\" and %d", c->in, (int)host.n, host.p, port);
    }
}

struct url_case {
    const char *in, *want; /* "tls host port authority path unix"; NULL for what is refused */
};

static const struct url_case urls[] = {
    { "http://a", "0 a 80 a  " },
    { "https://a", "1 a 443 a  " },
    { "http://a/", "0 a 80 a  " },
    { "http://a:80", "0 a 80 a  " },
    { "https://a:443/v1/", "1 a 443 a /v1 " },
    { "http://a:", "0 a 80 a  " },
    { "http://a:443", "0 a 443 a:443  " },
    { "https://a:80/x", "1 a 80 a:80 /x " },
    { "HTTPS://API.Example.COM/V1", "1 api.example.com 443 api.example.com /V1 " },
    { "http://127.0.0.1:9000/a/b", "0 127.0.0.1 9000 127.0.0.1:9000 /a/b " },
    { "http://[::1]", "0 ::1 80 [::1]  " },
    { "http://[2001:DB8::1]:81/", "0 2001:db8::1 81 [2001:db8::1]:81  " },
    { "http://a//x/../y//", "0 a 80 a /y " },
    { "unix:/run/a.sock", "0 localhost 0 localhost  /run/a.sock" },
    { "", NULL },
    { "a", NULL },
    { "a:80", NULL },
    { "ftp://a", NULL },
    { "http:/a", NULL },
    { "http://", NULL },
    { "http:///a", NULL },
    { "http://:80", NULL },
    { "http://u@a", NULL },
    { "http://u:p@a/", NULL },
    { "http://a?b", NULL },
    { "http://a/?b", NULL },
    { "http://a#b", NULL },
    { "http://a/b#c", NULL },
    { "http://a:0", NULL },
    { "http://a:70000", NULL },
    { "http://a b", NULL },
    { " http://a", NULL },
    { "http://a/%zz", NULL },
    { "http://a/..", NULL },
    { "http://a\\b", NULL },
    { "unix:", NULL },
    { "unix:a.sock", NULL },
    { "unix:/a\nb", NULL },
    { "unix:/0123456789012345678901234567890123456789012345678901234567890123456789"
      "0123456789012345678901234567890123456789",
      NULL },
};

static void parses_urls(void **state)
{
    (void)state;
    struct arena a;
    arena_init(&a);
    for (size_t i = 0; i < sizeof urls / sizeof *urls; i++) {
        const struct url_case *c = &urls[i];
        struct url u;
        const char *fault = url_parse(&a, slice_of(c->in), &u);
        if ((fault == NULL) != (c->want != NULL))
            fail_msg("\"%s\": %s", c->in, fault == NULL ? "accepted" : fault);
        if (fault != NULL)
            continue;
        struct slice got =
            arena_printf(&a, "%d %.*s %d %.*s %.*s %.*s", u.tls, (int)u.host.n, u.host.p, u.port,
                         (int)u.authority.n, u.authority.p, (int)u.path.n, u.path.p,
                         (int)u.unix_path.n, u.unix_path.p == NULL ? "" : u.unix_path.p);
        assert_string_equal(got.p, c->want);
    }
    arena_deinit(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(normalises_paths),
        cmocka_unit_test(copies_only_what_changes),
        cmocka_unit_test(normalises_random_paths),
        cmocka_unit_test(splits_authorities),
        cmocka_unit_test(parses_urls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
