/* meter: each way a request may end, under both policies. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "meter.h"

static const struct meter seen = { 100, 1000, 3, METER_SEEN };
static const struct meter reserved = { 100, 1000, 3, METER_RESERVED };
static const struct meter_facts good = { true, 200, true, false, LLM_BODY_STREAM };

static void expect(const struct meter *m, const struct llm_usage *u, struct meter_facts facts,
                   uint64_t tokens, enum meter_cause cause)
{
    struct meter_charge c = meter_charge(m, u, &facts);
    assert_int_equal(c.tokens, tokens);
    assert_string_equal(meter_cause_name(c.cause), meter_cause_name(cause));
}

static void charges_usage_as_reported(void **state)
{
    (void)state;
    struct llm_usage u = { .known = true, .input = 7, .output = 5, .total = 12, .text_bytes = 999 };
    struct meter_facts gone = good;
    gone.client_gone = true;
    gone.complete = false;
    expect(&seen, &u, good, 12, METER_USAGE);
    expect(&reserved, &u, good, 12, METER_USAGE);
    expect(&reserved, &u, gone, 12, METER_USAGE);
    u.total = 5000;
    expect(&seen, &u, good, 5000, METER_USAGE);
    u.total = 0;
    expect(&reserved, &u, good, 0, METER_USAGE);
    u.error = true;
    expect(&seen, &u, (struct meter_facts){ true, 500, true, false, LLM_BODY_JSON }, 0,
           METER_USAGE);
}

static void charges_nothing_for_what_cost_nothing(void **state)
{
    (void)state;
    struct llm_usage u = { .text_bytes = 30 };
    expect(&seen, NULL, (struct meter_facts){ 0 }, 0, METER_NOT_REACHED);
    expect(&reserved, NULL, (struct meter_facts){ .client_gone = true }, 0, METER_NOT_REACHED);
    static const int refusals[] = { 301, 400, 429, 500, 529 };
    for (unsigned i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        struct meter_facts f = { true, refusals[i], i % 2 == 0, i % 2 == 1, LLM_BODY_JSON };
        expect(&seen, &u, f, 0, METER_ORIGIN_ERROR);
        expect(&reserved, &u, f, 0, METER_ORIGIN_ERROR);
        expect(&reserved, NULL, f, 0, METER_ORIGIN_ERROR);
    }
}

static void charges_missing_usage_by_the_policy(void **state)
{
    (void)state;
    const struct {
        struct meter_facts facts;
        struct llm_usage usage;
        enum meter_cause cause;
    } ends[] = {
        { { true, 200, true, false, LLM_BODY_STREAM }, { .text_bytes = 31 }, METER_NO_USAGE },
        { { true, 200, true, false, LLM_BODY_JSON },
          { .text_bytes = 31, .done = true },
          METER_NO_USAGE },
        { { true, 200, false, true, LLM_BODY_STREAM }, { .text_bytes = 31 }, METER_CLIENT_GONE },
        { { true, 0, false, true, LLM_BODY_OTHER }, { .text_bytes = 31 }, METER_CLIENT_GONE },
        { { true, 200, false, false, LLM_BODY_STREAM }, { .text_bytes = 31 }, METER_CUT_OFF },
        { { true, 0, false, false, LLM_BODY_OTHER }, { .text_bytes = 31 }, METER_CUT_OFF },
        { { true, 200, true, false, LLM_BODY_STREAM },
          { .text_bytes = 31, .error = true },
          METER_ERROR_EVENT },
        { { true, 200, false, false, LLM_BODY_STREAM },
          { .text_bytes = 31, .error = true },
          METER_ERROR_EVENT },
        { { true, 200, true, false, LLM_BODY_OTHER }, { .text_bytes = 31 }, METER_UNREADABLE },
        { { true, 200, true, false, LLM_BODY_JSON },
          { .text_bytes = 31, .malformed = true },
          METER_UNREADABLE },
    };
    for (unsigned i = 0; i < sizeof ends / sizeof *ends; i++) {
        expect(&seen, &ends[i].usage, ends[i].facts, 100 + 11, ends[i].cause);
        expect(&reserved, &ends[i].usage, ends[i].facts, 1000, ends[i].cause);
    }
    expect(&seen, NULL, (struct meter_facts){ true, 0, false, false, LLM_BODY_OTHER }, 100,
           METER_CUT_OFF);
    expect(&seen, NULL, (struct meter_facts){ true, 0, false, true, LLM_BODY_OTHER }, 100,
           METER_CLIENT_GONE);
}

static void cannot_see_into_an_encoded_answer(void **state)
{
    (void)state;
    struct llm_usage u = { .text_bytes = 0 };
    struct meter_facts f = good;
    f.body = LLM_BODY_ENCODED;
    expect(&seen, &u, f, 1000, METER_UNREADABLE);
    f.client_gone = true;
    expect(&seen, &u, f, 1000, METER_CLIENT_GONE);
    f.client_gone = f.complete = false;
    expect(&seen, NULL, f, 1000, METER_CUT_OFF);
}

static void never_sees_more_than_was_reserved(void **state)
{
    (void)state;
    struct llm_usage u = { .text_bytes = 2700 };
    expect(&seen, &u, good, 1000, METER_NO_USAGE);
    u.text_bytes = 2698;
    expect(&seen, &u, good, 1000, METER_NO_USAGE);
    u.text_bytes = 2697;
    expect(&seen, &u, good, 999, METER_NO_USAGE);
    u.text_bytes = UINT64_MAX;
    expect(&seen, &u, good, 1000, METER_NO_USAGE);
    struct meter small = { 100, 50, 3, METER_SEEN };
    expect(&small, &u, good, 50, METER_NO_USAGE);
    expect(&small, NULL, (struct meter_facts){ .reached_origin = true }, 50, METER_CUT_OFF);
}

/* A stream that broke off had told what its prompt was, and at times some of its output. */
static void believes_what_was_reported_before_the_end(void **state)
{
    (void)state;
    struct llm_usage u = { .input_known = true, .input = 40, .text_bytes = 31 };
    struct meter_facts gone = { true, 200, false, true, LLM_BODY_STREAM };
    expect(&seen, &u, gone, 40 + 11, METER_CLIENT_GONE);
    expect(&reserved, &u, gone, 1000, METER_CLIENT_GONE);
    u.output = 50;
    expect(&seen, &u, gone, 40 + 50, METER_CLIENT_GONE);
    u.output = 5;
    expect(&seen, &u, gone, 40 + 11, METER_CLIENT_GONE);
    /* an input above its estimate leaves the output its room */
    u.input = 5000;
    expect(&seen, &u, gone, 5000 + 11, METER_CLIENT_GONE);
    expect(&reserved, &u, gone, 5000 + 11, METER_CLIENT_GONE);
    u.text_bytes = UINT64_MAX;
    expect(&seen, &u, gone, 5000 + 900, METER_CLIENT_GONE);
}

static void reserves_for_what_goes_on_in_the_background(void **state)
{
    (void)state;
    struct llm_request r = { .prompt_tokens = 100, .reserve = 1000 };
    struct llm_usage u = { .text_bytes = 31, .done = true };
    struct meter m = meter_of(&r, 3, METER_SEEN);
    expect(&m, &u, good, 111, METER_NO_USAGE);
    r.background = true;
    m = meter_of(&r, 3, METER_SEEN);
    expect(&m, &u, good, 1000, METER_NO_USAGE);
    u.known = true;
    u.total = 12;
    expect(&m, &u, good, 12, METER_USAGE);
}

static void names_its_policies_and_causes(void **state)
{
    (void)state;
    enum meter_policy p;
    assert_true(meter_policy_of_name(SLICE("seen"), &p) && p == METER_SEEN);
    assert_true(meter_policy_of_name(SLICE("reserved"), &p) && p == METER_RESERVED);
    assert_false(meter_policy_of_name(SLICE("Seen"), &p));
    assert_false(meter_policy_of_name(SLICE(""), &p));
    for (int i = 0; i < METER_CAUSES; i++)
        assert_non_null(meter_cause_name((enum meter_cause)i));
    assert_string_equal(meter_cause_name(METER_NO_USAGE), "no_usage");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(charges_usage_as_reported),
        cmocka_unit_test(charges_nothing_for_what_cost_nothing),
        cmocka_unit_test(charges_missing_usage_by_the_policy),
        cmocka_unit_test(cannot_see_into_an_encoded_answer),
        cmocka_unit_test(never_sees_more_than_was_reserved),
        cmocka_unit_test(believes_what_was_reported_before_the_end),
        cmocka_unit_test(reserves_for_what_goes_on_in_the_background),
        cmocka_unit_test(names_its_policies_and_causes),
    };
    return cmocka_run_group_tests_name("meter", tests, NULL, NULL);
}
