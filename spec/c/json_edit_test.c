/* json_edit: what is found where, what an edit changes and that it changes nothing else; compared
 * on random documents with a plain model. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "json_edit.h"

/* "a.0.b" as steps: digits alone are an index. */
static unsigned steps(const char *text, struct json_step *out)
{
    unsigned n = 0;
    while (*text != '\0') {
        size_t len = strcspn(text, ".");
        if (strspn(text, "0123456789") == len)
            out[n++] = (struct json_step){ { NULL, 0 }, strtoull(text, NULL, 10) };
        else
            out[n++] = (struct json_step){ { text, len }, 0 };
        text += len + (text[len] == '.');
    }
    return n;
}

static const char *edit(const char *doc, const char *path, const char *value)
{
    static struct buf out; /* what is returned lives in it */
    struct json_step s[JSON_STEPS];
    struct json_place p;
    const char *fault = NULL;
    size_t at;
    unsigned n = steps(path, s);
    buf_clear(&out);
    if (json_locate(slice_of(doc), s, n, &p, &fault, &at) != 0)
        return fault;
    if (value == NULL && !p.found)
        return "(absent)";
    if (value == NULL)
        json_remove(slice_of(doc), &p, &out);
    else if (!json_set(slice_of(doc), &p, s[n - 1].key, slice_of(value), &out))
        return "(no place)";
    buf_add(&out, "", 1);
    return out.p;
}

static void sets(void **state)
{
    static const struct {
        const char *doc, *path, *value, *want;
    } cases[] = {
        { "{\"model\":\"a\",\"n\":12345678901234567890,\"t\":[]}", "model", "\"b\"",
          "{\"model\":\"b\",\"n\":12345678901234567890,\"t\":[]}" },
        { " { \"a\" : { \"b\" : 1.0e5 } , \"b\" : 2 } ", "a.b", "[]",
          " { \"a\" : { \"b\" : [] } , \"b\" : 2 } " },
        { "{\"a\":{\"x\":{}},\"c\":1}", "a.x", "7", "{\"a\":{\"x\":7},\"c\":1}" },
        { "{\"a\":[1,[2,{\"k\":3}],4]}", "a.1.1.k", "null", "{\"a\":[1,[2,{\"k\":null}],4]}" },
        { "[1,2,3]", "2", "\"x\"", "[1,2,\"x\"]" },
        { "[[1],[2],[3]]", "1.0", "9", "[[1],[9],[3]]" },
        { "{}", "k", "1", "{\"k\":1}" },
        { "{\"a\":1}", "k\"y", "1", "{\"a\":1,\"k\\\"y\":1}" },
        { "{\"a\":{}}", "a.k", "1", "{\"a\":{\"k\":1}}" },
        { "{\"a\":{\"b\":1 } }", "a.k", "1", "{\"a\":{\"b\":1 ,\"k\":1} }" },
        { "{\"mod\\u0065l\":1}", "model", "2", "{\"mod\\u0065l\":2}" },
        { "{\"x\":{\"a\":1},\"a\":2}", "a", "3", "{\"x\":{\"a\":1},\"a\":3}" },
        { "{\"a\":{\"b\":1},\"c\":{\"b\":2}}", "c.b", "3", "{\"a\":{\"b\":1},\"c\":{\"b\":3}}" },
        { "[1]", "1", "2", "(no place)" },
        { "[1]", "k", "2", "(no place)" },
        { "{\"a\":1}", "a.b", "2", "(no place)" },
        { "5", "a", "2", "(no place)" },
        { "{\"a\":1}", "0", "2", "(no place)" },
        { "{\"a\":1,\"a\":2}", "a", "3", "a name on the path stands twice in its object" },
        { "{\"a\":{\"b\":1},\"a\":2}", "a.b", "3",
          "a name on the path stands twice in its object" },
        { "{\"x\":1,\"x\":2,\"a\":{\"x\":1,\"x\":2}}", "k", "3",
          "{\"x\":1,\"x\":2,\"a\":{\"x\":1,\"x\":2},\"k\":3}" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_string_equal(edit(cases[i].doc, cases[i].path, cases[i].value), cases[i].want);
}

static void removes(void **state)
{
    static const struct {
        const char *doc, *path, *want;
    } cases[] = {
        { "{\"a\":1,\"b\":2,\"c\":3}", "a", "{\"b\":2,\"c\":3}" },
        { "{\"a\":1,\"b\":2,\"c\":3}", "b", "{\"a\":1,\"c\":3}" },
        { "{\"a\":1,\"b\":2,\"c\":3}", "c", "{\"a\":1,\"b\":2}" },
        { "{ \"a\" : 1 }", "a", "{  }" },
        { "{ \"a\" : {\"x\":[1,2]} , \"b\":[] }", "a", "{ \"b\":[] }" },
        { "{ \"b\":[] , \"a\" : {\"x\":[1,2]} }", "a", "{ \"b\":[] }" },
        { "[1,2,3]", "0", "[2,3]" },
        { "[1,2,3]", "1", "[1,3]" },
        { "[1,2,3]", "2", "[1,2]" },
        { "[[]]", "0", "[]" },
        { "{\"m\":[{\"a\":1,\"b\":2}]}", "m.0.b", "{\"m\":[{\"a\":1}]}" },
        { "{\"a\":1}", "b", "(absent)" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_string_equal(edit(cases[i].doc, cases[i].path, NULL), cases[i].want);
}

static void refuses(void **state)
{
    (void)state;
    static const char *const docs[] = { "", "{", "{\"a\":01}", "{\"a\":1}}", "{\"a\":1,}", "nul" };
    for (size_t i = 0; i < sizeof docs / sizeof *docs; i++) {
        struct json_step s = { SLICE("a"), 0 };
        struct json_place p;
        const char *fault = NULL;
        size_t at = 0;
        assert_int_equal(json_locate(slice_of(docs[i]), &s, 1, &p, &fault, &at), -1);
        assert_non_null(fault);
    }
}

/* A flat object of n members with odd white space, written by a model; each member is set and
 * removed in turn and the model says what comes out. */
static void agrees_with_a_model(void **state)
{
    uint32_t seed = 5;
    (void)state;
    for (int round = 0; round < 500; round++) {
        static const char *const values[] = { "1", "\"x,y\"", "[1, {\"a\":[]}]",
                                              "{\"k0\":{\"k1\":2}}", "null" };
        struct buf doc = { 0 }, want = { 0 };
        char path[8];
        seed = seed * 1664525u + 1013904223u;
        int n = 1 + (int)(seed >> 8) % 8, which = (int)(seed >> 16) % n;
        buf_add_text(&doc, "{");
        buf_add_text(&want, "{");
        for (int i = 0; i < n; i++) {
            struct buf member = { 0 };
            buf_printf(&member, "\"k%d\"%s:%s%s", i, round % 2 ? " " : "", round % 3 ? "" : "\n",
                       values[(seed >> (i + 3)) % 5]);
            buf_add_text(&doc, i > 0 ? "," : "");
            buf_add_slice(&doc, buf_slice(&member));
            if (i != which) {
                buf_add_text(&want, want.n > 1 ? "," : "");
                buf_add_slice(&want, buf_slice(&member));
            }
            buf_deinit(&member);
        }
        buf_add(&doc, "}", 2);
        buf_add(&want, "}", 2);
        snprintf(path, sizeof path, "k%d", which);
        assert_string_equal(edit(doc.p, path, NULL), want.p);
        buf_deinit(&doc);
        buf_deinit(&want);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(sets), cmocka_unit_test(removes),
                                        cmocka_unit_test(refuses),
                                        cmocka_unit_test(agrees_with_a_model) };
    return cmocka_run_group_tests_name("json_edit", tests, NULL, NULL);
}
