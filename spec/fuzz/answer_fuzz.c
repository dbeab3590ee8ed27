/* Answers of LLM APIs, read by each of them: any split gives the same usage and the same bytes to
 * the client; these are the origin's own, but for one event that may be taken out. */
#include "fuzz.h"
#include "llm.h"

static void emit(void *arg, struct slice piece)
{
    buf_add_slice(arg, piece);
}

static void read_answer(enum llm_api api, enum llm_body body, bool strip, struct slice input,
                        enum fuzz_cut cut, struct buf *said, struct buf *out)
{
    struct llm_reader *r = llm_reader_new(api, body, strip);
    struct fuzz_random random = fuzz_random(input);
    struct slice piece, rest = input;
    char *hold = NULL;
    while ((piece = fuzz_piece(&rest, cut, &random, &hold)).n > 0)
        llm_reader_feed(r, piece, emit, out);
    free(hold);
    llm_reader_end(r, emit, out);
    const struct llm_usage *u = llm_reader_usage(r);
    CHECK(u->input <= LLM_TOKENS_END + 1 && u->output <= LLM_TOKENS_END + 1);
    CHECK(out->n + llm_reader_taken(r).n == input.n);
    CHECK(strip || slice_eq(buf_slice(out), input));
    buf_printf(said, "%d%d%d%d%d %llu %llu %llu %llu\n", u->known, u->input_known, u->done,
               u->error, u->malformed, (unsigned long long)u->input, (unsigned long long)u->output,
               (unsigned long long)u->total, (unsigned long long)u->text_bytes);
    buf_add_slice(said, llm_reader_taken(r));
    buf_add_slice(said, buf_slice(out));
    llm_reader_free(r);
}

static void try_all_cuts(enum llm_api api, enum llm_body body, bool strip, struct slice input)
{
    struct buf first, said, out;
    buf_init(&first);
    for (enum fuzz_cut cut = FUZZ_WHOLE; cut < FUZZ_CUTS; cut++) {
        buf_init(&said);
        buf_init(&out);
        read_answer(api, body, strip, input, cut, cut == FUZZ_WHOLE ? &first : &said, &out);
        if (cut != FUZZ_WHOLE)
            fuzz_same(&first, &said, "two splits of an answer");
        buf_deinit(&said);
        buf_deinit(&out);
    }
    buf_deinit(&first);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    struct slice input = { (const char *)bytes, n };
    for (enum llm_api api = LLM_NONE; api < LLM_APIS; api++) {
        try_all_cuts(api, LLM_BODY_JSON, false, input);
        try_all_cuts(api, LLM_BODY_STREAM, false, input);
        if (api == LLM_OPENAI_CHAT)
            try_all_cuts(api, LLM_BODY_STREAM, true, input);
    }
    return 0;
}
