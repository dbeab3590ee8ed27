/* Inspecting and rewriting of requests, as far as all APIs have it in common. */
#include <stdarg.h>
#include <stdio.h>

#include "llm_api.h"

_Static_assert((int)LLM_MODEL >= (int)JSON_CAPTURE, "a captured model name must fit");

struct pass {
    struct llm_scan scan;
    const struct llm_dialect *dialect;
};

bool llm_uint(const struct json_event *e, uint64_t *out)
{
    if (e->type != JSON_NUMBER || !e->whole)
        return false;
    uint64_t value = 0;
    for (size_t i = 0; i < e->text.n; i++) {
        char c = e->text.p[i];
        if (c < '0' || c > '9')
            return false;
        value = value * 10 + (uint64_t)(c - '0');
        if (value > LLM_TOKENS_END)
            value = LLM_TOKENS_END + 1;
    }
    *out = value;
    return true;
}

int llm_refuse(struct llm_scan *s, const char *param, const char *code, const char *format, ...)
{
    struct llm_fault *f = &s->out->fault;
    va_list ap;
    va_start(ap, format);
    vsnprintf(f->message, sizeof f->message, format, ap);
    va_end(ap);
    f->param = param;
    f->code = code;
    return 1;
}

int llm_once(struct llm_scan *s, enum llm_key key)
{
    if (s->seen[key])
        return llm_refuse(s, llm_key_name(key), "duplicate_parameter", "'%s' is given twice",
                          llm_key_name(key));
    s->seen[key] = true;
    return 0;
}

int llm_take_model(struct llm_scan *s, const struct json_event *e)
{
    struct llm_request *r = s->out;
    if (e->type == JSON_NULL)
        return 0;
    if (e->type != JSON_STRING)
        return llm_refuse(s, "model", "invalid_type", "'model' must be a string");
    if (!e->whole)
        return llm_refuse(s, "model", "invalid_value", "'model' is longer than %d bytes",
                          JSON_CAPTURE);
    r->model_start = (size_t)e->start;
    r->model_end = (size_t)e->end;
    r->model = (struct slice){ s->body.p + e->start + 1, (size_t)e->decoded };
    /* Every escape is longer than what it stands for. */
    if (e->end - e->start - 2 != e->decoded) {
        memcpy(r->model_copy, e->text.p, e->text.n);
        r->model.p = r->model_copy;
    }
    return 0;
}

int llm_take_bool(struct llm_scan *s, const struct json_event *e, const char *param,
                  enum llm_ask *out)
{
    if (e->type != JSON_TRUE && e->type != JSON_FALSE && e->type != JSON_NULL)
        return llm_refuse(s, param, "invalid_type", "'%s' must be true or false", param);
    *out = e->type == JSON_TRUE ? LLM_TRUE : e->type == JSON_FALSE ? LLM_FALSE : LLM_ABSENT;
    return 0;
}

int llm_take_stream(struct llm_scan *s, const struct json_event *e)
{
    enum llm_ask stream = LLM_ABSENT;
    if (llm_take_bool(s, e, "stream", &stream) != 0)
        return 1;
    s->out->stream = stream == LLM_TRUE;
    return 0;
}

int llm_take_count(struct llm_scan *s, const struct json_event *e, const char *param,
                   uint64_t least, struct llm_number *out)
{
    if (e->type == JSON_NULL) {
        out->null_start = (size_t)e->start;
        out->null_end = (size_t)e->end;
        return 0;
    }
    if (e->type != JSON_NUMBER)
        return llm_refuse(s, param, "invalid_type", "'%s' must be an integer", param);
    if (!llm_uint(e, &out->value) || out->value < least)
        return llm_refuse(s, param, "invalid_value", "'%s' must be an integer of at least %u",
                          param, (unsigned)least);
    if (out->value >= LLM_TOKENS_END)
        return llm_refuse(s, param, "invalid_value", "'%s' is too large", param);
    out->given = true;
    return 0;
}

static uint64_t add(uint64_t a, uint64_t b)
{
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

static uint64_t multiply(uint64_t a, uint64_t b)
{
    return b != 0 && a > UINT64_MAX / b ? UINT64_MAX : a * b;
}

void llm_count_part(struct llm_scan *s, const struct llm_part *part)
{
    if (part->plain)
        s->text += part->bytes;
    else if (part->attached && part->image)
        s->images++;
    else if (part->attached)
        s->files++;
}

int llm_estimate(struct llm_scan *s, const struct llm_number *given, const char *param)
{
    const struct llm_options *o = s->options;
    struct llm_request *r = s->out;
    if (r->hidden)
        s->tokens = add(s->tokens, o->hidden_tokens);
    r->n = s->n.given ? s->n.value : 1;
    r->output_given = given->given;
    r->output_max = given->given ? given->value : o->default_output;
    r->prompt_tokens =
        add(add(llm_tokens(s->text, o->bytes_per_token), s->tokens),
            add(multiply(s->images, o->image_tokens), multiply(s->files, o->file_tokens)));
    r->reserve = add(r->prompt_tokens, multiply(r->n, r->output_max));
    if (r->reserve >= LLM_TOKENS_END)
        return llm_refuse(s,
                          r->n > 1       ? "n"
                          : given->given ? param
                                         : NULL,
                          "invalid_value", "the request may cost more tokens than can be counted");
    return 0;
}

void llm_add_edit(struct llm_request *r, size_t start, size_t end, const char *format, ...)
{
    int at = r->edits++;
    for (; at > 0 && r->edit[at - 1].start > start; at--)
        r->edit[at] = r->edit[at - 1];
    struct llm_edit *edit = &r->edit[at];
    va_list ap;
    va_start(ap, format);
    edit->n = (size_t)vsnprintf(edit->text, sizeof edit->text, format, ap);
    va_end(ap);
    edit->start = start;
    edit->end = end;
}

void llm_cap_output(struct llm_scan *s, const struct llm_number *given, const char *param)
{
    unsigned long long output = s->out->output_max;
    if (!s->options->cap_output || given->given)
        return;
    if (given->null_end > 0)
        llm_add_edit(s->out, given->null_start, given->null_end, "%llu", output);
    else
        llm_add_edit(s->out, s->members, s->members, "\"%s\":%llu%s", param, output,
                     s->has_members ? "," : "");
}

static int on_value(void *arg, const struct json_event *e)
{
    struct pass *pass = arg;
    struct llm_scan *s = &pass->scan;
    llm_path_step(&s->path, e);
    if (e->depth == 0 && e->type != JSON_OBJECT && e->type != JSON_OBJECT_END)
        return llm_refuse(s, NULL, "invalid_type", "the body must be a JSON object");
    if (e->depth == 0 && e->type == JSON_OBJECT)
        s->members = (size_t)e->end;
    if (e->depth == 1)
        s->has_members = true;
    return pass->dialect->request(s, e);
}

enum llm_inspected llm_inspect(enum llm_api api, struct slice body,
                               const struct llm_options *options, struct llm_request *out)
{
    struct pass pass = { { .body = body, .options = options, .out = out }, llm_dialect_of(api) };
    if (pass.dialect == NULL)
        return LLM_UNSUPPORTED;
    memset(out, 0, sizeof *out);
    struct json j;
    json_init(&j, on_value, &pass);
    int rc = json_feed(&j, body.p, body.n);
    if (rc == 0)
        rc = json_finish(&j);
    if (json_fault(&j) != NULL)
        llm_refuse(&pass.scan, NULL, "invalid_json", "the body is not valid JSON: %s, at byte %llu",
                   json_fault(&j), (unsigned long long)j.offset);
    if (rc == 0)
        rc = pass.dialect->request_end(&pass.scan);
    return rc == 0 ? LLM_OK : LLM_FAULT;
}

bool llm_rewrite(struct slice body, const struct llm_request *r, struct buf *out)
{
    size_t from = 0;
    if (r->edits == 0)
        return false;
    buf_reserve(out, body.n + sizeof r->edit);
    for (int i = 0; i < r->edits; i++) {
        const struct llm_edit *edit = &r->edit[i];
        buf_add(out, body.p + from, edit->start - from);
        buf_add(out, edit->text, edit->n);
        from = edit->end;
    }
    buf_add(out, body.p + from, body.n - from);
    return true;
}
