/* json_canonical: what has one form, what has none, and that texts which differ in more than order,
 * white space and escapes have different ones. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "json_canonical.h"

static struct buf out;
static const char *fault;
static size_t fault_at;

/* The form, or NULL. */
static const char *form_without(const char *text, const struct slice *omit, unsigned n)
{
    buf_clear(&out);
    fault = NULL;
    if (json_canonical(slice_of(text), omit, n, &out, &fault, &fault_at) != 0) {
        assert_int_equal(out.n, 0);
        return NULL;
    }
    buf_add(&out, "", 1);
    return out.p;
}

static const char *form(const char *text)
{
    return form_without(text, NULL, 0);
}

static void has_one_form(void **state)
{
    static const struct {
        const char *text, *want;
    } cases[] = {
        { " { \"b\" : 1 , \"a\" : [ ] } ", "{\"a\":[],\"b\":1}" },
        { "{\"a\":{\"z\":{\"y\":1,\"x\":2},\"k\":[{\"d\":1,\"c\":2},3]},\"\":null}",
          "{\"\":null,\"a\":{\"k\":[{\"c\":2,\"d\":1},3],\"z\":{\"x\":2,\"y\":1}}}" },
        { "[1.0,1,1e5,12345678901234567890,-0]", "[1.0,1,1e5,12345678901234567890,-0]" },
        { "\"\\u0041\\/\\n\\u000a\\u20ac\\ud83d\\ude00\\\"\\u0000\"",
          "\"A/\\n\\n\xe2\x82\xac\xf0\x9f\x98\x80\\\"\\u0000\"" },
        { "{\"\\u0062\":1,\"a\":2}", "{\"a\":2,\"b\":1}" },
        { "{\"ab\":1,\"a\":2,\"a!\":3}", "{\"a!\":3,\"a\":2,\"ab\":1}" },
        { " 7 ", "7" },
        { "{}", "{}" },
        { "[[],{},[{}]]", "[[],{},[{}]]" },
        { "{\"\xc3\xa9\":true,\"e\":false}", "{\"e\":false,\"\xc3\xa9\":true}" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char again[128];
        assert_string_equal(form(cases[i].text), cases[i].want);
        snprintf(again, sizeof again, "%s", out.p);
        assert_string_equal(form(again), cases[i].want);
    }
}

static void has_none(void **state)
{
    static const struct {
        const char *text, *fault;
        size_t at;
    } cases[] = {
        { "{\"a\":1,\"b\":2,\"a\":3}", "duplicate member", 13 },
        { "{\"x\":{\"\\u0061\":1,\"a\":1}}", "duplicate member", 17 },
        { "[\"\\ud800\"]", "half of a surrogate pair", 1 },
        { "{\"\\udc00x\":1}", "half of a surrogate pair", 1 },
        { "{\"a\":1", "the text ends too early", 6 },
        { "{} {}", "more follows the value", 3 },
        { "{},\"a\":1", "more follows the value", 2 },
        { "", "the text ends too early", 0 },
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_null(form(cases[i].text));
        assert_string_equal(fault, cases[i].fault);
        assert_int_equal(fault_at, cases[i].at);
    }
}

static void leaves_members_out(void **state)
{
    const struct slice omit[] = { SLICE("stream"), SLICE("stream_options") };
    (void)state;
    assert_string_equal(form_without("{\"stream\":true,\"a\":1}", omit, 2), "{\"a\":1}");
    assert_string_equal(form_without("{\"a\":1,\"stream\":true}", omit, 2), "{\"a\":1}");
    assert_string_equal(
        form_without(
            "{\"b\":{\"stream\":1},\"stream\":{\"x\":[2]},\"a\":1,\"str\\u0065am_options\":{}}",
            omit, 2),
        "{\"a\":1,\"b\":{\"stream\":1}}");
    assert_string_equal(form_without("{\"stream\":false}", omit, 2), "{}");
    assert_string_equal(form_without("[\"stream\"]", omit, 2), "[\"stream\"]");
}

/* --- random documents: a shuffled copy has the same form, a changed one has another --- */

static uint32_t seed;

static uint32_t any(uint32_t n)
{
    seed = seed * 1664525 + 1013904223;
    return (seed >> 8) % n;
}

static void space(struct buf *b, bool loose)
{
    if (loose && any(3) == 0)
        buf_add_text(b, " ");
}

/* The same document for the same seed; `order` turns members around, `loose` adds white space and
 * escapes, and the scalar number `change` is another one. */
struct writer {
    struct buf *b;
    bool turn, loose;
    int change, scalars;
};

static void write_name(struct writer *w, uint32_t i)
{
    if (w->loose)
        buf_printf(w->b, "\"\\u%04x%u\"", 'k', i);
    else
        buf_printf(w->b, "\"k%u\"", i);
}

static void write_value(struct writer *w, uint32_t id, int depth)
{
    uint32_t kind = id % 5, n = id / 5 % 4;
    space(w->b, w->loose);
    if (depth == 0 || kind > 2) {
        static const char *const scalars[] = { "1", "1.0", "\"a\"", "null", "true" };
        buf_add_text(w->b, w->scalars++ == w->change ? "\"changed\"" : scalars[id / 20 % 5]);
    } else if (kind == 0) {
        buf_add_text(w->b, "[");
        for (uint32_t i = 0; i < n; i++) {
            buf_add_text(w->b, i > 0 ? "," : "");
            write_value(w, id * 31 + i * 7 + 1, depth - 1);
        }
        buf_add_text(w->b, "]");
    } else {
        buf_add_text(w->b, "{");
        for (uint32_t i = 0; i < n; i++) {
            uint32_t at = w->turn ? n - 1 - i : i;
            buf_add_text(w->b, i > 0 ? "," : "");
            write_name(w, at);
            space(w->b, w->loose);
            buf_add_text(w->b, ":");
            write_value(w, id * 37 + at * 11 + 3, depth - 1);
        }
        buf_add_text(w->b, "}");
    }
    space(w->b, w->loose);
}

static char *written(uint32_t id, bool turn, bool loose, int change, int *scalars)
{
    struct buf b;
    struct writer w = { &b, turn, loose, change, 0 };
    buf_init(&b);
    write_value(&w, id, 5);
    buf_add(&b, "", 1);
    if (scalars != NULL)
        *scalars = w.scalars;
    char *copy = strdup(b.p);
    buf_deinit(&b);
    return copy;
}

static void random_documents(void **state)
{
    (void)state;
    seed = 7;
    for (int i = 0; i < 3000; i++) {
        int n;
        uint32_t id = any(1 << 20);
        char *plain = written(id, false, false, -1, &n),
             *other = written(id, false, true, -1, NULL);
        char *want = strdup(form(plain));
        assert_string_equal(form(other), want);
        free(other);
        if (n > 0) {
            other = written(id, false, false, (int)any((uint32_t)n), NULL);
            assert_string_not_equal(form(other), want);
            free(other);
        }
        free(plain);
        free(want);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(has_one_form),
        cmocka_unit_test(has_none),
        cmocka_unit_test(leaves_members_out),
        cmocka_unit_test(random_documents),
    };
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    buf_deinit(&out);
    return rc;
}
