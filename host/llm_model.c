/* The model that a request's body names, for who only picks a target by it: what it costs is not
 * looked at (llm_request.c). The whole body is read, since a member that stands twice is read in
 * two ways: one by whoever picks, another by the provider. */
#include <stdio.h>

#include "json.h"
#include "llm.h"
#include "llm_path.h"

struct pass {
    struct llm_path path;
    struct slice body;
    struct llm_model *out;
    struct llm_fault *fault;
};

static int refuse(struct pass *p, const char *param, const char *code, const char *message)
{
    snprintf(p->fault->message, sizeof p->fault->message, "%s", message);
    p->fault->param = param;
    p->fault->code = code;
    return 1;
}

static int on_value(void *arg, const struct json_event *e)
{
    struct pass *p = arg;
    struct llm_model *m = p->out;
    llm_path_step(&p->path, e);
    if (e->depth == 0 && e->type != JSON_OBJECT && e->type != JSON_OBJECT_END)
        return refuse(p, NULL, "invalid_type", "the body must be a JSON object");
    if (e->depth != 1 || e->type == JSON_KEY || llm_path_at(&p->path, 1) != LLM_K_MODEL)
        return 0;
    if (e->type == JSON_OBJECT_END || e->type == JSON_ARRAY_END)
        return 0;
    if (m->seen)
        return refuse(p, "model", "duplicate_parameter", "'model' is given twice");
    m->seen = true;
    if (e->type == JSON_NULL)
        return 0;
    if (e->type != JSON_STRING)
        return refuse(p, "model", "invalid_type", "'model' must be a string");
    if (!e->whole)
        return refuse(p, "model", "invalid_value", "'model' is too long");
    memcpy(m->text, e->text.p, e->text.n);
    m->name = (struct slice){ m->text, e->text.n };
    m->start = (size_t)e->start;
    m->end = (size_t)e->end;
    return 0;
}

enum llm_inspected llm_find_model(struct slice body, struct llm_model *out, struct llm_fault *fault)
{
    struct pass p = { .body = body, .out = out, .fault = fault };
    struct json j;
    out->name = (struct slice){ NULL, 0 };
    out->start = out->end = 0;
    out->seen = false;
    json_init(&j, on_value, &p);
    int rc = json_feed(&j, body.p, body.n);
    if (rc == 0)
        rc = json_finish(&j);
    if (json_fault(&j) != NULL) {
        snprintf(fault->message, sizeof fault->message,
                 "the body is not valid JSON: %s, at byte %llu", json_fault(&j),
                 (unsigned long long)j.offset);
        fault->param = NULL;
        fault->code = "invalid_json";
    }
    return rc == 0 ? LLM_OK : LLM_FAULT;
}
