/* See tls_store.h. */
#include "tls_store.h"

#include <openssl/evp.h>
#include <openssl/x509v3.h>
#include <string.h>
#include <time.h>

#include "mem.h"
#include "sni.h"
#include "tls_identity.h"

enum { DAY = 86400, DIGEST = 32 };

struct entry {
    struct tls_identity *identity; /* a reference */
    unsigned char names[DIGEST];   /* of all the names that it serves */
    int next;                      /* one for the same names by another kind of key; -1: none */
};

struct tls_store {
    struct entry *v;
    uint32_t n;
    struct sni *names;
    int64_t expires;
};

void tls_store_free(struct tls_store *s)
{
    if (s == NULL)
        return;
    for (uint32_t i = 0; i < s->n; i++)
        tls_identity_unref(s->v[i].identity);
    mem_free(s->v);
    sni_free(s->names);
    mem_free(s);
}

int64_t tls_store_expires(const struct tls_store *s)
{
    return s->expires;
}

/* --- whether it is good now --- */

static void day_of(int64_t at, char out[32])
{
    struct tm tm;
    time_t t = (time_t)at;
    gmtime_r(&t, &tm);
    strftime(out, 32, "%Y-%m-%d %H:%M UTC", &tm);
}

static int judge(const struct tls_certificate *given, const struct tls_identity *i,
                 struct buf *faults, struct buf *warnings)
{
    int64_t now = (int64_t)time(NULL);
    char day[32];
    if (i->to <= now) {
        day_of(i->to, day);
        buf_printf(faults, "%s.cert: the certificate expired on %s\n", given->path, day);
        return -1;
    }
    if (i->from > now) {
        day_of(i->from, day);
        buf_printf(faults, "%s.cert: the certificate is not valid before %s\n", given->path, day);
        return -1;
    }
    if (i->to - now < TLS_STORE_SOON_DAYS * (int64_t)DAY) {
        day_of(i->to, day);
        buf_printf(warnings, "%s.cert: the certificate expires on %s\n", given->path, day);
    }
    return 0;
}

/* --- names --- */

/* What names of a certificate are told to. */
struct naming {
    EVP_MD_CTX *digest;
    struct sni *names; /* NULL: none */
    unsigned which;
};

static void name(struct naming *to, struct slice text)
{
    if (to->names != NULL)
        sni_add(to->names, text, to->which);
    EVP_DigestUpdate(to->digest, text.p, text.n);
    EVP_DigestUpdate(to->digest, "", 1);
}

/* Its alternative names; the common name only where there are none (RFC 6125, section 6.4.4). */
static void name_own(struct naming *to, X509 *cert)
{
    GENERAL_NAMES *all = X509_get_ext_d2i(cert, NID_subject_alt_name, NULL, NULL);
    for (int i = 0; all != NULL && i < sk_GENERAL_NAME_num(all); i++) {
        const GENERAL_NAME *g = sk_GENERAL_NAME_value(all, i);
        if (g->type == GEN_DNS)
            name(to, (struct slice){ (const char *)ASN1_STRING_get0_data(g->d.dNSName),
                                     (size_t)ASN1_STRING_length(g->d.dNSName) });
    }
    char text[256];
    if (all == NULL && X509_NAME_get_text_by_NID(X509_get_subject_name(cert), NID_commonName, text,
                                                 sizeof text) > 0)
        name(to, slice_of(text));
    GENERAL_NAMES_free(all);
}

static void name_all(struct naming *to, const struct tls_certificate *given, X509 *cert,
                     unsigned char digest[DIGEST])
{
    EVP_DigestInit_ex(to->digest, EVP_sha256(), NULL);
    for (uint32_t k = 0; k < given->nnames; k++)
        name(to, slice_of(given->names[k]));
    if (given->nnames == 0)
        name_own(to, cert);
    EVP_DigestFinal_ex(to->digest, digest, NULL);
}

/* One for the same names by another kind of key is put behind the first of them. */
static bool join(struct tls_store *s, uint32_t i)
{
    int kind = s->v[i].identity->kind;
    for (uint32_t k = 0; k < i; k++) {
        if (s->v[k].identity->kind == kind || memcmp(s->v[k].names, s->v[i].names, DIGEST) != 0)
            continue;
        int *at = &s->v[k].next;
        while (*at >= 0 && s->v[*at].identity->kind != kind)
            at = &s->v[*at].next;
        if (*at < 0)
            *at = (int)i;
        return true;
    }
    return false;
}

static void add_names(struct tls_store *s, const struct tls_certificate *given, uint32_t i,
                      EVP_MD_CTX *digest)
{
    struct naming to = { .digest = digest, .which = i };
    struct entry *e = &s->v[i];
    name_all(&to, given, e->identity->cert, e->names);
    if (join(s, i))
        return;
    to.names = s->names;
    name_all(&to, given, e->identity->cert, e->names);
}

/* --- all of them --- */

static int add(struct tls_store *s, SSL_CTX *reader, const struct tls_certificate *given,
               bool valid_now, struct buf *faults, struct buf *warnings)
{
    struct tls_pem_fault f;
    struct entry *e = &s->v[s->n++];
    e->next = -1;
    e->identity = tls_identity_get(reader, given->cert, given->key, &f);
    if (e->identity == NULL) {
        buf_printf(faults, "%s.%s: %s\n", given->path, f.key, f.text);
        return -1;
    }
    if (e->identity->to < s->expires)
        s->expires = e->identity->to;
    return valid_now ? judge(given, e->identity, faults, warnings) : 0;
}

struct tls_store *tls_store_new(const struct tls_certificate *given, uint32_t n, bool valid_now,
                                struct buf *faults, struct buf *warnings)
{
    struct tls_store *s = mem_zalloc(sizeof *s);
    SSL_CTX *reader = SSL_CTX_new(TLS_server_method());
    EVP_MD_CTX *digest = EVP_MD_CTX_new();
    int err = reader != NULL ? 0 : -1;
    s->v = mem_zalloc(n * sizeof *s->v);
    s->names = sni_new();
    s->expires = INT64_MAX;
    for (uint32_t i = 0; i < n && reader != NULL; i++) {
        if (add(s, reader, &given[i], valid_now, faults, warnings) != 0)
            err = -1;
        if (err == 0)
            add_names(s, &given[i], i, digest);
    }
    EVP_MD_CTX_free(digest);
    SSL_CTX_free(reader);
    if (err == 0)
        return s;
    tls_store_free(s);
    return NULL;
}

int tls_store_find(const struct tls_store *s, SSL *ssl)
{
    const char *asked = SSL_get_servername(ssl, TLSEXT_NAMETYPE_host_name);
    return asked != NULL ? sni_find(s->names, slice_of(asked)) : -1;
}

int tls_store_set_first(const struct tls_store *s, SSL_CTX *c)
{
    for (int i = 0; i >= 0; i = s->v[i].next) {
        const struct tls_identity *one = s->v[i].identity;
        if (SSL_CTX_use_cert_and_key(c, one->cert, one->key, one->chain, 1) != 1)
            return 0;
    }
    return 1;
}

int tls_store_use(const struct tls_store *s, SSL *ssl)
{
    int i = tls_store_find(s, ssl);
    if (i <= 0)
        return 1; /* the context's own */
    SSL_certs_clear(ssl);
    for (; i >= 0; i = s->v[i].next) {
        const struct tls_identity *one = s->v[i].identity;
        if (SSL_use_cert_and_key(ssl, one->cert, one->key, one->chain, 1) != 1)
            return 0;
    }
    return 1;
}
