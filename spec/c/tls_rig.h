/* Certificates for tests, made on the spot: an authority, and what it issues. PEM text in memory.
 */
#ifndef TOLLGATE_SPEC_TLS_RIG_H
#define TOLLGATE_SPEC_TLS_RIG_H

#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <time.h>

#include "mem.h"
#include "tls.h"

struct tls_rig_identity {
    X509 *cert;
    EVP_PKEY *key;
    char cert_text[4096], key_text[4096];
};

static inline void tls_rig_extend(X509 *cert, X509 *issuer, int nid, const char *value)
{
    X509V3_CTX ctx;
    X509V3_set_ctx_nodb(&ctx);
    X509V3_set_ctx(&ctx, issuer, cert, NULL, NULL, 0);
    X509_EXTENSION *e = X509V3_EXT_conf_nid(NULL, &ctx, nid, value);
    X509_add_ext(cert, e, -1);
    X509_EXTENSION_free(e);
}

static inline void tls_rig_text(BIO *b, char out[4096])
{
    char *p;
    long n = BIO_get_mem_data(b, &p);
    memcpy(out, p, (size_t)n);
    out[n] = '\0';
    BIO_free(b);
}

/* names: as in subjectAltName ("DNS:a.example,IP:127.0.0.1"), NULL for an authority; issuer: NULL
 * for self-signed; valid from and to in seconds from now. */
static inline void tls_rig_issue(struct tls_rig_identity *out, const char *cn, const char *names,
                                 const struct tls_rig_identity *issuer, long from, long to)
{
    static long serial = 1;
    out->key = EVP_EC_gen("P-256");
    out->cert = X509_new();
    X509_set_version(out->cert, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(out->cert), serial++);
    X509_gmtime_adj(X509_getm_notBefore(out->cert), from);
    X509_gmtime_adj(X509_getm_notAfter(out->cert), to);
    X509_set_pubkey(out->cert, out->key);
    X509_NAME *name = X509_get_subject_name(out->cert);
    X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, (const unsigned char *)cn, -1, -1, 0);
    X509 *by = issuer != NULL ? issuer->cert : out->cert;
    X509_set_issuer_name(out->cert, X509_get_subject_name(by));
    tls_rig_extend(out->cert, by, NID_basic_constraints,
                   names == NULL ? "critical,CA:TRUE" : "critical,CA:FALSE");
    if (names != NULL)
        tls_rig_extend(out->cert, by, NID_subject_alt_name, names);
    X509_sign(out->cert, issuer != NULL ? issuer->key : out->key, EVP_sha256());
    BIO *b = BIO_new(BIO_s_mem());
    PEM_write_bio_X509(b, out->cert);
    tls_rig_text(b, out->cert_text);
    b = BIO_new(BIO_s_mem());
    PEM_write_bio_PrivateKey(b, out->key, NULL, NULL, 0, NULL, NULL);
    tls_rig_text(b, out->key_text);
}

static inline void tls_rig_forget(struct tls_rig_identity *i)
{
    X509_free(i->cert);
    EVP_PKEY_free(i->key);
}

static inline struct tls_context *tls_rig_server(const struct tls_rig_identity *i)
{
    struct tls_pem_fault f;
    SSL_CTX *c = SSL_CTX_new(TLS_server_method());
    if (tls_pem_identity(c, slice_of(i->cert_text), slice_of(i->key_text), &f) != 0)
        abort();
    return tls_server_context(c);
}

static inline struct tls_context *tls_rig_client(const struct tls_rig_identity *ca)
{
    struct tls_pem_fault f;
    struct tls_client_options o = { .ca = slice_of(ca->cert_text) };
    return tls_client_context(&o, &f);
}

#endif
