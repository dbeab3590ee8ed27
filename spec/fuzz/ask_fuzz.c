/* Requests to LLM APIs, read by each of them: a rewritten body is JSON and costs what was reserved
 * for it, and all that look for the model find the same one. */
#include "fuzz.h"
#include "json.h"
#include "llm_peek.h"

static int on_event(void *arg, const struct json_event *e)
{
    (void)arg;
    (void)e;
    return 0;
}

static bool valid(struct slice doc)
{
    struct json j;
    json_init(&j, on_event, NULL);
    return json_feed(&j, doc.p, doc.n) == 0 && json_finish(&j) == 0;
}

static void check_model(struct slice body, const struct llm_request *r)
{
    struct llm_model model;
    struct llm_fault fault;
    memset(&model, 0, sizeof model);
    CHECK(llm_find_model(body, &model, &fault) == LLM_OK);
    CHECK(slice_eq(model.name, r->model) && model.start == r->model_start &&
          model.end == r->model_end);
}

static void inspect(enum llm_api api, struct slice body, const struct llm_options *options)
{
    static struct llm_request r, again;
    enum llm_inspected found = llm_inspect(api, body, options, &r);
    if (found == LLM_FAULT)
        CHECK(memchr(r.fault.message, 0, sizeof r.fault.message) != NULL &&
              r.fault.message[0] != 0);
    if (found != LLM_OK)
        return;
    CHECK(valid(body) && r.reserve <= LLM_TOKENS_END && r.reserve >= r.prompt_tokens);
    check_model(body, &r);
    struct buf out;
    buf_init(&out);
    if (llm_rewrite(body, &r, &out)) {
        CHECK(valid(buf_slice(&out)));
        CHECK(llm_inspect(api, buf_slice(&out), options, &again) == LLM_OK);
        CHECK(again.stream == r.stream && again.n == r.n && slice_eq(again.model, r.model));
        CHECK(again.output_max == r.output_max && again.edits == 0);
        CHECK(!options->cap_output || again.output_given);
        CHECK(!r.strip_usage || again.include_usage == LLM_TRUE);
    }
    buf_deinit(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    struct slice body = { (const char *)bytes, n };
    struct llm_options options = { 4, 1000, 85, 2000, 8000, false };
    for (enum llm_api api = LLM_NONE; api < LLM_APIS; api++) {
        options.cap_output = false;
        inspect(api, body, &options);
        options.cap_output = true;
        inspect(api, body, &options);
    }
    char code[LLM_ERROR_CODE];
    CHECK(llm_error_code(body, code).n <= sizeof code);
    return 0;
}
