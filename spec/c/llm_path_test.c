/* Keys of LLM APIs, found by their text. */
#include "llm_path.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static enum llm_key key_of(const char *text, size_t n)
{
    struct llm_path path = { { 0 } };
    struct json_event e = { .type = JSON_KEY, .depth = 1, .text = { text, n }, .whole = true };
    llm_path_step(&path, &e);
    return llm_path_at(&path, 1);
}

static void finds_every_key_by_its_name(void **state)
{
    (void)state;
    for (int i = LLM_K_ITEM + 1; i < LLM_KEYS; i++) {
        const char *name = llm_key_name((enum llm_key)i);
        assert_int_equal(key_of(name, strlen(name)), i);
    }
}

static void takes_no_other_name_for_one(void **state)
{
    (void)state;
    static const char *const others[] = { "Model", "models", "mode", "{", "`",
                                          "zebra", "\xff",   "_",    "w" };
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        assert_int_equal(key_of(others[i], strlen(others[i])), LLM_K_OTHER);
    assert_int_equal(key_of("", 0), LLM_K_OTHER);
    assert_int_equal(key_of("model\0", 6), LLM_K_OTHER);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finds_every_key_by_its_name),
        cmocka_unit_test(takes_no_other_name_for_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
