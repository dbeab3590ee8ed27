/* See tls_store.h. */
#include "tls_store.h"

#include <openssl/x509v3.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "mem.h"
#include "sni.h"

enum { DAY = 86400 };

/* One certificate. Another for the same names by another kind of key (RSA and ECDSA) is behind it.
 */
struct identity {
    X509 *cert;
    EVP_PKEY *key;
    STACK_OF(X509) * chain;
    int next; /* -1: none */
};

struct tls_store {
    struct identity *v;
    uint32_t n;
    struct sni *names;
    int64_t expires;
};

void tls_store_free(struct tls_store *s)
{
    if (s == NULL)
        return;
    for (uint32_t i = 0; i < s->n; i++) {
        X509_free(s->v[i].cert);
        EVP_PKEY_free(s->v[i].key);
        sk_X509_pop_free(s->v[i].chain, X509_free);
    }
    mem_free(s->v);
    sni_free(s->names);
    mem_free(s);
}

int64_t tls_store_expires(const struct tls_store *s)
{
    return s->expires;
}

static int64_t time_of(const ASN1_TIME *t)
{
    struct tm tm;
    return ASN1_TIME_to_tm(t, &tm) == 1 ? (int64_t)timegm(&tm) : INT64_MAX;
}

static void day_of(int64_t at, char out[32])
{
    struct tm tm;
    time_t t = (time_t)at;
    gmtime_r(&t, &tm);
    strftime(out, 32, "%Y-%m-%d %H:%M UTC", &tm);
}

static int judge(const struct tls_certificate *given, X509 *cert, struct buf *faults,
                 struct buf *warnings)
{
    int64_t now = (int64_t)time(NULL), from = time_of(X509_get0_notBefore(cert)),
            to = time_of(X509_get0_notAfter(cert));
    char day[32];
    if (to <= now) {
        day_of(to, day);
        buf_printf(faults, "%s.cert: the certificate expired on %s\n", given->path, day);
        return -1;
    }
    if (from > now) {
        day_of(from, day);
        buf_printf(faults, "%s.cert: the certificate is not valid before %s\n", given->path, day);
        return -1;
    }
    if (to - now < TLS_STORE_SOON_DAYS * (int64_t)DAY) {
        day_of(to, day);
        buf_printf(warnings, "%s.cert: the certificate expires on %s\n", given->path, day);
    }
    return 0;
}

/* Its alternative names; the common name only where there are none (RFC 6125, section 6.4.4). */
static void add_own_names(struct sni *names, X509 *cert, unsigned which)
{
    GENERAL_NAMES *all = X509_get_ext_d2i(cert, NID_subject_alt_name, NULL, NULL);
    for (int i = 0; all != NULL && i < sk_GENERAL_NAME_num(all); i++) {
        const GENERAL_NAME *g = sk_GENERAL_NAME_value(all, i);
        if (g->type == GEN_DNS)
            sni_add(names,
                    (struct slice){ (const char *)ASN1_STRING_get0_data(g->d.dNSName),
                                    (size_t)ASN1_STRING_length(g->d.dNSName) },
                    which);
    }
    char text[256];
    if (all == NULL && X509_NAME_get_text_by_NID(X509_get_subject_name(cert), NID_commonName, text,
                                                 sizeof text) > 0)
        sni_add(names, slice_of(text), which);
    GENERAL_NAMES_free(all);
}

static bool same_names(const struct tls_certificate *a, X509 *x, const struct tls_certificate *b,
                       X509 *y)
{
    if (a->nnames != b->nnames)
        return false;
    for (uint32_t i = 0; i < a->nnames; i++) {
        if (strcmp(a->names[i], b->names[i]) != 0)
            return false;
    }
    if (a->nnames > 0)
        return true;
    GENERAL_NAMES *p = X509_get_ext_d2i(x, NID_subject_alt_name, NULL, NULL),
                  *q = X509_get_ext_d2i(y, NID_subject_alt_name, NULL, NULL);
    bool same = p != NULL && q != NULL && sk_GENERAL_NAME_num(p) == sk_GENERAL_NAME_num(q);
    for (int i = 0; same && i < sk_GENERAL_NAME_num(p); i++)
        same = GENERAL_NAME_cmp(sk_GENERAL_NAME_value(p, i), sk_GENERAL_NAME_value(q, i)) == 0;
    GENERAL_NAMES_free(p);
    GENERAL_NAMES_free(q);
    return same;
}

/* One for the same names by another kind of key is put behind the first of them. */
static bool join(struct tls_store *s, const struct tls_certificate *given, uint32_t i)
{
    for (uint32_t k = 0; k < i; k++) {
        int kind = EVP_PKEY_get_base_id(s->v[i].key);
        if (EVP_PKEY_get_base_id(s->v[k].key) == kind ||
            !same_names(&given[k], s->v[k].cert, &given[i], s->v[i].cert))
            continue;
        int *at = &s->v[k].next;
        while (*at >= 0 && EVP_PKEY_get_base_id(s->v[*at].key) != kind)
            at = &s->v[*at].next;
        if (*at < 0)
            *at = (int)i;
        return true;
    }
    return false;
}

static int read_identity(SSL_CTX *reader, const struct tls_certificate *given, struct identity *one,
                         struct buf *faults)
{
    struct tls_pem_fault f;
    STACK_OF(X509) *chain = NULL;
    one->next = -1;
    if (tls_pem_identity(reader, given->cert, given->key, &f) != 0) {
        buf_printf(faults, "%s.%s: %s\n", given->path, f.key, f.text);
        return -1;
    }
    SSL_CTX_get0_chain_certs(reader, &chain);
    one->cert = SSL_CTX_get0_certificate(reader);
    one->key = SSL_CTX_get0_privatekey(reader);
    X509_up_ref(one->cert);
    EVP_PKEY_up_ref(one->key);
    one->chain = chain != NULL ? X509_chain_up_ref(chain) : NULL;
    return 0;
}

static void add_names(struct tls_store *s, const struct tls_certificate *given, uint32_t i)
{
    if (join(s, given, i))
        return;
    for (uint32_t k = 0; k < given[i].nnames; k++)
        sni_add(s->names, slice_of(given[i].names[k]), i);
    if (given[i].nnames == 0)
        add_own_names(s->names, s->v[i].cert, i);
}

struct tls_store *tls_store_new(const struct tls_certificate *given, uint32_t n, bool valid_now,
                                struct buf *faults, struct buf *warnings)
{
    struct tls_store *s = mem_zalloc(sizeof *s);
    SSL_CTX *reader = SSL_CTX_new(TLS_server_method()); /* one for all: to make one is slow */
    int err = 0;
    s->v = mem_zalloc(n * sizeof *s->v);
    s->names = sni_new();
    s->expires = INT64_MAX;
    for (uint32_t i = 0; i < n; i++) {
        struct identity *one = &s->v[i];
        s->n = i + 1;
        if (reader == NULL || read_identity(reader, &given[i], one, faults) != 0 ||
            (valid_now && judge(&given[i], one->cert, faults, warnings) != 0)) {
            err = -1;
            continue;
        }
        int64_t expires = time_of(X509_get0_notAfter(one->cert));
        s->expires = expires < s->expires ? expires : s->expires;
        if (err == 0)
            add_names(s, given, i);
    }
    SSL_CTX_free(reader);
    if (err == 0)
        return s;
    tls_store_free(s);
    return NULL;
}

int tls_store_find(const struct tls_store *s, SSL *ssl)
{
    const char *name = SSL_get_servername(ssl, TLSEXT_NAMETYPE_host_name);
    return name != NULL ? sni_find(s->names, slice_of(name)) : -1;
}

int tls_store_use(const struct tls_store *s, SSL *ssl)
{
    int i = tls_store_find(s, ssl);
    SSL_certs_clear(ssl);
    for (i = i >= 0 ? i : 0; i >= 0; i = s->v[i].next) {
        const struct identity *one = &s->v[i];
        if (SSL_use_cert_and_key(ssl, one->cert, one->key, one->chain, 1) != 1)
            return 0;
    }
    return 1;
}
