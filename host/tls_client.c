/* See tls_client.h. */
#include "tls_client.h"

#include <stdio.h>
#include <uv.h>

/* False, and *f, where it cannot be read. */
static bool read_file(struct snapshot *s, const char *key, const char *path, struct slice *out,
                      struct tls_pem_fault *f)
{
    int err = path != NULL ? snapshot_file(s, path, out) : 0;
    if (err == 0)
        return true;
    f->key = key;
    snprintf(f->text, sizeof f->text, "%s cannot be read: %s", path, uv_strerror(err));
    return false;
}

static struct tls_context *load(const struct tls_client *c, struct snapshot *s,
                                struct tls_pem_fault *f)
{
    struct tls_client_options o = { .insecure = c->insecure, .http = c->http };
    if (!read_file(s, "ca", c->ca, &o.ca, f) || !read_file(s, "cert", c->cert, &o.cert, f) ||
        !read_file(s, "key", c->key, &o.key, f))
        return NULL;
    struct tls_context *context = tls_client_context(&o, f);
    if (context != NULL)
        return context;
    const char *path = strcmp(f->key, "ca") == 0     ? c->ca
                       : strcmp(f->key, "cert") == 0 ? c->cert
                                                     : c->key;
    char text[sizeof f->text];
    snprintf(text, sizeof text, "%s", f->text);
    if (path != NULL)
        snprintf(f->text, sizeof f->text, "%.*s: %.*s", 120, path, 120, text);
    return NULL;
}

struct tls_context *tls_client_load(const struct tls_client *c, struct snapshot *snapshot,
                                    struct tls_pem_fault *f)
{
    if (snapshot != NULL)
        return load(c, snapshot, f);
    struct snapshot *own = snapshot_new();
    struct tls_context *context = load(c, own, f);
    snapshot_free(own);
    return context;
}
