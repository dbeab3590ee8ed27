/* See tls_pem.h. */
#include "tls_pem.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <stdarg.h>
#include <stdio.h>

#include "tls_fault.h"

static int refuse(struct tls_pem_fault *f, const char *key, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static int refuse(struct tls_pem_fault *f, const char *key, const char *format, ...)
{
    va_list ap;
    f->key = key;
    va_start(ap, format);
    vsnprintf(f->text, sizeof f->text, format, ap);
    va_end(ap);
    ERR_clear_error();
    return -1;
}

static int refuse_last_words(struct tls_pem_fault *f, const char *key, const char *what)
{
    char words[160];
    tls_fault_last_words(words, sizeof words);
    return refuse(f, key, "%s: %s", what, words);
}

static BIO *bio_of(struct slice text)
{
    return BIO_new_mem_buf(text.n > 0 ? text.p : "", (int)text.n);
}

/* Whether reading ended because nothing more stands there. */
static bool at_end(void)
{
    unsigned long e = ERR_peek_last_error();
    return ERR_GET_LIB(e) == ERR_LIB_PEM && ERR_GET_REASON(e) == PEM_R_NO_START_LINE;
}

/* A key that is encrypted is refused: there is nobody to ask for its passphrase. */
static int on_passphrase(char *out, int size, int writing, void *arg)
{
    (void)out, (void)size, (void)writing;
    *(bool *)arg = true;
    return -1;
}

static int read_chain(SSL_CTX *c, BIO *b, struct tls_pem_fault *f)
{
    X509 *cert;
    SSL_CTX_clear_chain_certs(c);
    while ((cert = PEM_read_bio_X509(b, NULL, NULL, NULL)) != NULL) {
        if (SSL_CTX_add0_chain_cert(c, cert) != 1) {
            X509_free(cert);
            return refuse_last_words(f, "cert", "an issuer's certificate in it cannot be used");
        }
    }
    if (!at_end())
        return refuse_last_words(f, "cert", "an issuer's certificate in it cannot be read");
    ERR_clear_error();
    return 0;
}

static int use_cert(SSL_CTX *c, struct slice text, struct tls_pem_fault *f)
{
    BIO *b = bio_of(text);
    X509 *cert = PEM_read_bio_X509_AUX(b, NULL, NULL, NULL);
    int err;
    if (cert == NULL)
        err = at_end() ? refuse(f, "cert", "holds no certificate in PEM form")
                       : refuse_last_words(f, "cert", "the certificate cannot be read");
    else if (SSL_CTX_use_certificate(c, cert) != 1)
        err = refuse_last_words(f, "cert", "the certificate cannot be used");
    else
        err = read_chain(c, b, f);
    X509_free(cert);
    BIO_free(b);
    return err;
}

static int use_key(SSL_CTX *c, struct slice text, struct tls_pem_fault *f)
{
    bool encrypted = false;
    BIO *b = bio_of(text);
    EVP_PKEY *key = PEM_read_bio_PrivateKey(b, NULL, on_passphrase, &encrypted);
    int err = 0;
    if (encrypted)
        err = refuse(f, "key", "the key is encrypted, and nobody is there to give its passphrase");
    else if (key == NULL)
        err = memmem(text.p, text.n, "PRIVATE KEY-----", 16) == NULL
                  ? refuse(f, "key", "holds no private key in PEM form")
                  : refuse_last_words(f, "key", "the key cannot be read");
    else if (X509_check_private_key(SSL_CTX_get0_certificate(c), key) != 1)
        err = refuse(f, "key", "is not the key of the certificate");
    else if (SSL_CTX_use_PrivateKey(c, key) != 1)
        err = refuse_last_words(f, "key", "the key cannot be used");
    EVP_PKEY_free(key);
    BIO_free(b);
    return err;
}

int tls_pem_identity(SSL_CTX *c, struct slice cert, struct slice key, struct tls_pem_fault *f)
{
    int err = use_cert(c, cert, f);
    return err != 0 ? err : use_key(c, key, f);
}

X509 *tls_pem_first(struct slice text, struct tls_pem_fault *f)
{
    BIO *b = bio_of(text);
    X509 *cert = PEM_read_bio_X509_AUX(b, NULL, NULL, NULL);
    if (cert == NULL)
        refuse(f, "cert", "holds no certificate in PEM form");
    BIO_free(b);
    return cert;
}

int tls_pem_trust(X509_STORE *store, struct slice ca, struct tls_pem_fault *f)
{
    BIO *b = bio_of(ca);
    STACK_OF(X509_INFO) *all = PEM_X509_INFO_read_bio(b, NULL, NULL, NULL);
    int certs = 0, err = 0;
    if (all == NULL)
        err = refuse_last_words(f, "ca", "cannot be read");
    for (int i = 0; err == 0 && i < sk_X509_INFO_num(all); i++) {
        const X509_INFO *one = sk_X509_INFO_value(all, i);
        if (one->x509 != NULL && X509_STORE_add_cert(store, one->x509) != 1)
            err = refuse_last_words(f, "ca", "a certificate in it cannot be used");
        else if (one->crl != NULL && X509_STORE_add_crl(store, one->crl) != 1)
            err = refuse_last_words(f, "ca", "a revocation list in it cannot be used");
        if (one->crl != NULL)
            X509_STORE_set_flags(store, X509_V_FLAG_CRL_CHECK | X509_V_FLAG_CRL_CHECK_ALL);
        certs += one->x509 != NULL;
    }
    if (err == 0 && certs == 0)
        err = refuse(f, "ca", "holds no certificate in PEM form");
    sk_X509_INFO_pop_free(all, X509_INFO_free);
    BIO_free(b);
    ERR_clear_error();
    return err;
}
