/* The list of header fields. */
#include "headers.h"

#include <ctype.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

static struct arena arena;

static int setup(void **state)
{
    (void)state;
    arena_init(&arena);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    arena_deinit(&arena);
    return 0;
}

/* "Name: value" lines. */
static struct headers make(const char *const *lines)
{
    struct headers h;
    headers_init(&h, &arena);
    for (; *lines != NULL; lines++) {
        const char *colon = strchr(*lines, ':');
        headers_add(&h, (struct slice){ *lines, (size_t)(colon - *lines) }, slice_of(colon + 2));
    }
    return h;
}

#define MAKE(...) make((const char *const[]){ __VA_ARGS__, NULL })

static void expect(const struct headers *h, const char *want)
{
    struct slice got = SLICE("");
    for (uint32_t i = 0; i < h->n; i++)
        got = arena_printf(&arena, "%.*s%.*s=%.*s;", (int)got.n, got.p, (int)h->v[i].name.n,
                           h->v[i].name.p, (int)h->v[i].value.n, h->v[i].value.p);
    assert_string_equal(got.p, want);
}

static void knows_names(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        enum header_id id;
    } known[] = {
        { "Accept-Encoding", HEADER_ACCEPT_ENCODING },
        { "Authorization", HEADER_AUTHORIZATION },
        { "Cache-Status", HEADER_CACHE_STATUS },
        { "Connection", HEADER_CONNECTION },
        { "Content-Encoding", HEADER_CONTENT_ENCODING },
        { "Content-Length", HEADER_CONTENT_LENGTH },
        { "Content-Type", HEADER_CONTENT_TYPE },
        { "Date", HEADER_DATE },
        { "Expect", HEADER_EXPECT },
        { "Forwarded", HEADER_FORWARDED },
        { "Host", HEADER_HOST },
        { "Keep-Alive", HEADER_KEEP_ALIVE },
        { "Proxy-Authenticate", HEADER_PROXY_AUTHENTICATE },
        { "Proxy-Authorization", HEADER_PROXY_AUTHORIZATION },
        { "Proxy-Connection", HEADER_PROXY_CONNECTION },
        { "Retry-After", HEADER_RETRY_AFTER },
        { "Server", HEADER_SERVER },
        { "TE", HEADER_TE },
        { "Traceparent", HEADER_TRACEPARENT },
        { "Tracestate", HEADER_TRACESTATE },
        { "Trailer", HEADER_TRAILER },
        { "Transfer-Encoding", HEADER_TRANSFER_ENCODING },
        { "Upgrade", HEADER_UPGRADE },
        { "Via", HEADER_VIA },
        { "X-Api-Key", HEADER_X_API_KEY },
        { "X-Forwarded-For", HEADER_X_FORWARDED_FOR },
        { "X-Forwarded-Host", HEADER_X_FORWARDED_HOST },
        { "X-Forwarded-Proto", HEADER_X_FORWARDED_PROTO },
        { "X-Request-Id", HEADER_X_REQUEST_ID },
    };
    assert_int_equal(sizeof known / sizeof *known, HEADER_COUNT - 1);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        char name[32];
        size_t n = strlen(known[i].name);
        for (size_t k = 0; k <= n; k++) {
            char c = known[i].name[k];
            name[k] = c >= 'A' && c <= 'Z'   ? (char)(c | 0x20)
                      : c >= 'a' && c <= 'z' ? (char)(c & ~0x20)
                                             : c;
        }
        assert_int_equal(header_id(slice_of(known[i].name)), known[i].id);
        assert_int_equal(header_id(slice_of(name)), known[i].id);
        for (size_t k = 0; k < n; k++) { /* one byte that is another one makes another name */
            char was = name[k];
            for (int c = 0; c < 256; c++) {
                bool same = tolower(c) == tolower((unsigned char)was);
                name[k] = (char)c;
                assert_int_equal(header_id((struct slice){ name, n }) == known[i].id, same);
            }
            name[k] = was;
        }
        assert_int_equal(header_id((struct slice){ known[i].name, n - 1 }), HEADER_OTHER);
    }
    assert_int_equal(header_id(SLICE("")), HEADER_OTHER);
    assert_int_equal(header_id(SLICE("x-a-name-that-is-longer-than-any-known")), HEADER_OTHER);
    assert_int_equal(header_id(SLICE("content\rlength")), HEADER_OTHER);
}

static void checks_names_and_values(void **state)
{
    (void)state;
    assert_true(header_name_valid(SLICE("a")));
    assert_true(header_name_valid(SLICE("!#$%&'*+-.^_`|~09AZaz")));
    for (int c = 0; c < 256; c++) {
        char byte = (char)c;
        bool control = (c < 0x20 && c != '\t') || c == 0x7f;
        bool token = c > 0x20 && c < 0x7f && strchr("\"(),/:;<=>?@[\\]{}", c) == NULL;
        assert_int_equal(header_value_valid((struct slice){ &byte, 1 }), !control);
        assert_int_equal(header_name_valid((struct slice){ &byte, 1 }), token);
    }
    assert_false(header_name_valid(SLICE("")));
    assert_false(header_name_valid(SLICE("a b")));
    assert_true(header_value_valid(SLICE("")));
    assert_false(header_value_valid(SLICE("a\r\nSet-Cookie: b")));
}

static void lists(void **state)
{
    (void)state;
    struct slice rest = SLICE(" a,,b c\t, ,d,"), member;
    assert_true(header_list_next(&rest, &member) && slice_eq(member, SLICE("a")));
    assert_true(header_list_next(&rest, &member) && slice_eq(member, SLICE("b c")));
    assert_true(header_list_next(&rest, &member) && slice_eq(member, SLICE("d")));
    assert_false(header_list_next(&rest, &member));
    rest = (struct slice){ NULL, 0 };
    assert_false(header_list_next(&rest, &member));
}

static void gets_and_sets(void **state)
{
    (void)state;
    struct headers h = MAKE("A: 1", "Host: h", "a: 2", "B: 3", "A: 4");
    assert_true(slice_eq(headers_get(&h, SLICE("a")), SLICE("1")));
    assert_true(slice_eq(headers_get(&h, SLICE("HOST")), SLICE("h")));
    assert_true(slice_eq(headers_get_id(&h, HEADER_HOST), SLICE("h")));
    assert_null(headers_get(&h, SLICE("c")).p);
    assert_null(headers_get_id(&h, HEADER_DATE).p);
    assert_int_equal(headers_find(&h, SLICE("a"), 0), 0);
    assert_int_equal(headers_find(&h, SLICE("a"), 1), 2);
    assert_int_equal(headers_find(&h, SLICE("a"), 5), -1);
    headers_set(&h, SLICE("a"), SLICE("new"));
    expect(&h, "a=new;Host=h;B=3;");
    headers_set(&h, SLICE("host"), SLICE("i"));
    headers_set(&h, SLICE("C"), SLICE("5"));
    expect(&h, "a=new;host=i;B=3;C=5;");
    headers_set(&h, SLICE("C"), SLICE("6"));
    expect(&h, "a=new;host=i;B=3;C=6;");
}

static void removes(void **state)
{
    (void)state;
    struct headers h = MAKE("A: 1", "Via: x", "a: 2", "B: 3", "via: y");
    assert_int_equal(headers_remove(&h, SLICE("A")), 2);
    assert_int_equal(headers_remove(&h, SLICE("A")), 0);
    expect(&h, "Via=x;B=3;via=y;");
    assert_int_equal(headers_remove_id(&h, HEADER_VIA), 2);
    expect(&h, "B=3;");
    headers_remove_at(&h, 0);
    assert_int_equal(h.n, 0);
    assert_int_equal(headers_remove(&h, SLICE("A")), 0);
}

static void grows(void **state)
{
    (void)state;
    struct headers h;
    headers_init(&h, &arena);
    headers_reserve(&h, 3);
    for (int i = 0; i < 1000; i++)
        headers_add(&h, arena_printf(&arena, "n%d", i), SLICE("v"));
    assert_int_equal(h.n, 1000);
    assert_int_equal(headers_find(&h, SLICE("N999"), 0), 999);
    assert_int_equal(headers_find(&h, SLICE("n0"), 0), 0);
}

static void finds_tokens(void **state)
{
    (void)state;
    struct headers h = MAKE("Connection: a, Keep-Alive ,,", "X: close", "connection: upgrade");
    assert_true(headers_has_token(&h, HEADER_CONNECTION, SLICE("keep-alive")));
    assert_true(headers_has_token(&h, HEADER_CONNECTION, SLICE("Upgrade")));
    assert_false(headers_has_token(&h, HEADER_CONNECTION, SLICE("close")));
    assert_false(headers_has_token(&h, HEADER_CONNECTION, SLICE("keep")));
    assert_false(headers_has_token(&h, HEADER_CONNECTION, SLICE("")));
}

static void removes_hop_by_hop(void **state)
{
    (void)state;
    struct headers h =
        MAKE("Host: h", "Connection: X-Drop, close, host, content-length, X-Forwarded-User, via",
             "x-drop: 1", "Keep-Alive: 5", "Proxy-Connection: k", "TE: trailers", "Trailer: a",
             "Transfer-Encoding: chunked", "Upgrade: h2c", "Proxy-Authenticate: a",
             "Proxy-Authorization: b", "X-Keep: 2", "connection: also", "Also: 3", "also: 4",
             "Content-Length: 5", "X-Forwarded-User: u", "Via: v", "close: 6");
    headers_remove_hop_by_hop(&h);
    expect(&h, "Host=h;X-Keep=2;Content-Length=5;X-Forwarded-User=u;Via=v;");
    headers_remove_hop_by_hop(&h);
    assert_int_equal(h.n, 5);
    h = MAKE("A: 1");
    headers_remove_at(&h, 0);
    headers_remove_hop_by_hop(&h);
    assert_int_equal(h.n, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(knows_names, setup, teardown),
        cmocka_unit_test_setup_teardown(checks_names_and_values, setup, teardown),
        cmocka_unit_test_setup_teardown(lists, setup, teardown),
        cmocka_unit_test_setup_teardown(gets_and_sets, setup, teardown),
        cmocka_unit_test_setup_teardown(removes, setup, teardown),
        cmocka_unit_test_setup_teardown(grows, setup, teardown),
        cmocka_unit_test_setup_teardown(finds_tokens, setup, teardown),
        cmocka_unit_test_setup_teardown(removes_hop_by_hop, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
