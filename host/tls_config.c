/* See tls_config.h. As bytes it is a list of strings, each with a NUL behind it: an absent one is
 * empty, a list has its length before it. */
#include "tls_config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

#include "tls_server.h"

/* --- a context of it --- */

static int read_file(struct snapshot *files, const char *path, const char *key, const char *file,
                     struct slice *out, struct buf *faults)
{
    int err = snapshot_file(files, file, out);
    if (err != 0)
        buf_printf(faults, "%s.%s: %s: %s\n", path, key, file, uv_strerror(err));
    else if (out->p == NULL)
        *out = SLICE(""); /* empty, not absent */
    return err != 0 ? -1 : 0;
}

static int read_certificates(const struct tls_config *c, struct snapshot *files,
                             struct tls_certificate *out, struct buf *faults)
{
    int err = 0;
    for (uint32_t i = 0; i < c->ncertificates; i++) {
        const struct tls_config_certificate *one = &c->certificates[i];
        out[i].path = one->path;
        out[i].names = one->names;
        out[i].nnames = one->nnames;
        if (read_file(files, one->path, "cert", one->cert, &out[i].cert, faults) != 0)
            err = -1;
        if (read_file(files, one->path, "key", one->key, &out[i].key, faults) != 0)
            err = -1;
    }
    return err;
}

struct tls_context *tls_config_load(const struct tls_config *c, struct snapshot *files,
                                    const struct ticket_ring *ring, struct buf *faults,
                                    struct buf *warnings)
{
    struct arena a;
    arena_init(&a);
    struct tls_server_options o = {
        .path = c->path,
        .certificates = arena_zalloc(&a, c->ncertificates * sizeof *o.certificates),
        .ncertificates = c->ncertificates,
        .tls13 = strcmp(c->min_version, "1.3") == 0,
        .ciphers = c->ciphers,
        .nciphers = c->nciphers,
        .required = c->required,
        .tickets = c->tickets,
        .ring = ring,
        .valid_now = snapshot_recording(files),
    };
    int err = read_certificates(c, files, o.certificates, faults);
    if (c->ca != NULL && read_file(files, c->path, "client.ca", c->ca, &o.ca, faults) != 0)
        err = -1;
    if (c->ticket_keys != NULL &&
        read_file(files, c->path, "ticket_keys", c->ticket_keys, &o.ticket_keys, faults) != 0)
        err = -1;
    struct tls_context *made = err == 0 ? tls_server_new(&o, faults, warnings) : NULL;
    arena_deinit(&a);
    return made;
}

/* --- as bytes --- */

static void put(struct buf *out, const char *text)
{
    buf_add(out, text != NULL ? text : "", text != NULL ? strlen(text) + 1 : 1);
}

static void put_list(struct buf *out, const char **v, uint32_t n)
{
    buf_printf(out, "%u", n);
    buf_add(out, "", 1);
    for (uint32_t i = 0; i < n; i++)
        put(out, v[i]);
}

void tls_config_write(const struct tls_config *c, struct buf *out)
{
    put(out, c->path);
    put(out, c->min_version);
    put(out, c->ca);
    put(out, c->required ? "1" : "");
    put(out, c->tickets ? "1" : "");
    put(out, c->ticket_keys);
    put_list(out, c->ciphers, c->nciphers);
    buf_printf(out, "%u", c->ncertificates);
    buf_add(out, "", 1);
    for (uint32_t i = 0; i < c->ncertificates; i++) {
        const struct tls_config_certificate *one = &c->certificates[i];
        put(out, one->path);
        put(out, one->cert);
        put(out, one->key);
        put_list(out, one->names, one->nnames);
    }
}

struct reader {
    struct arena *a;
    struct slice from;
    bool short_of; /* something was missing */
};

/* The next string; "" where none is left. */
static const char *take(struct reader *r)
{
    const char *end = r->from.n > 0 ? memchr(r->from.p, '\0', r->from.n) : NULL;
    if (end == NULL) {
        r->short_of = true;
        return "";
    }
    struct slice text = { r->from.p, (size_t)(end - r->from.p) };
    r->from = (struct slice){ end + 1, r->from.n - text.n - 1 };
    return arena_dup(r->a, text).p;
}

/* An empty one as absent. */
static const char *take_some(struct reader *r)
{
    const char *text = take(r);
    return text[0] != '\0' ? text : NULL;
}

/* No list has more items than there are bytes. */
static uint32_t take_length(struct reader *r)
{
    unsigned long n = strtoul(take(r), NULL, 10);
    if (n <= r->from.n)
        return (uint32_t)n;
    r->short_of = true;
    return 0;
}

static const char **take_list(struct reader *r, uint32_t *n)
{
    *n = take_length(r);
    const char **v = arena_alloc(r->a, (*n + 1) * sizeof *v);
    for (uint32_t i = 0; i < *n; i++)
        v[i] = take(r);
    return v;
}

struct tls_config *tls_config_read(struct arena *a, struct slice bytes)
{
    struct reader r = { a, bytes, false };
    struct tls_config *c = arena_zalloc(a, sizeof *c);
    c->path = take(&r);
    c->min_version = take(&r);
    c->ca = take_some(&r);
    c->required = take_some(&r) != NULL;
    c->tickets = take_some(&r) != NULL;
    c->ticket_keys = take_some(&r);
    c->ciphers = take_list(&r, &c->nciphers);
    c->ncertificates = take_length(&r);
    c->certificates = arena_zalloc(a, (c->ncertificates + 1) * sizeof *c->certificates);
    for (uint32_t i = 0; i < c->ncertificates && !r.short_of; i++) {
        struct tls_config_certificate *one = &c->certificates[i];
        one->path = take(&r);
        one->cert = take(&r);
        one->key = take(&r);
        one->names = take_list(&r, &one->nnames);
    }
    return !r.short_of && c->ncertificates > 0 ? c : NULL;
}
