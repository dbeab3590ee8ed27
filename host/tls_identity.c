/* See tls_identity.h. The table holds no references: an identity leaves it when its last owner
 * does. A process has one loop, so nothing here is locked. */
#include "tls_identity.h"

#include <openssl/evp.h>
#include <string.h>
#include <time.h>

#include "container.h"
#include "mem.h"

enum { BUCKETS = 1024, DIGEST = 32 };

struct holder {
    struct holder *next;
    unsigned refs;
    unsigned char digest[DIGEST];
    struct tls_identity identity;
};

static struct holder *buckets[BUCKETS];

static void digest_of(struct slice cert, struct slice key, unsigned char out[DIGEST])
{
    uint64_t n = cert.n; /* first, so that no other pair of texts looks the same */
    EVP_MD_CTX *md = EVP_MD_CTX_new();
    EVP_DigestInit_ex(md, EVP_sha256(), NULL);
    EVP_DigestUpdate(md, &n, sizeof n);
    EVP_DigestUpdate(md, cert.p, cert.n);
    EVP_DigestUpdate(md, key.p, key.n);
    EVP_DigestFinal_ex(md, out, NULL);
    EVP_MD_CTX_free(md);
}

static struct holder **bucket_of(const unsigned char digest[DIGEST])
{
    return &buckets[(digest[0] | (unsigned)digest[1] << 8) % BUCKETS];
}

static int64_t time_of(const ASN1_TIME *t)
{
    struct tm tm;
    return ASN1_TIME_to_tm(t, &tm) == 1 ? (int64_t)timegm(&tm) : INT64_MAX;
}

static struct holder *holder_new(SSL_CTX *reader, const unsigned char digest[DIGEST])
{
    struct holder *h = mem_zalloc(sizeof *h);
    struct tls_identity *i = &h->identity;
    STACK_OF(X509) *chain = NULL;
    h->refs = 1;
    memcpy(h->digest, digest, DIGEST);
    SSL_CTX_get0_chain_certs(reader, &chain);
    i->cert = SSL_CTX_get0_certificate(reader);
    i->key = SSL_CTX_get0_privatekey(reader);
    X509_up_ref(i->cert);
    EVP_PKEY_up_ref(i->key);
    i->chain = chain != NULL ? X509_chain_up_ref(chain) : NULL;
    i->kind = EVP_PKEY_get_base_id(i->key);
    i->from = time_of(X509_get0_notBefore(i->cert));
    i->to = time_of(X509_get0_notAfter(i->cert));
    return h;
}

struct tls_identity *tls_identity_get(SSL_CTX *reader, struct slice cert, struct slice key,
                                      struct tls_pem_fault *f)
{
    unsigned char digest[DIGEST];
    digest_of(cert, key, digest);
    struct holder **bucket = bucket_of(digest);
    for (struct holder *h = *bucket; h != NULL; h = h->next) {
        if (memcmp(h->digest, digest, DIGEST) == 0) {
            h->refs++;
            return &h->identity;
        }
    }
    if (tls_pem_identity(reader, cert, key, f) != 0)
        return NULL;
    struct holder *h = holder_new(reader, digest);
    h->next = *bucket;
    *bucket = h;
    return &h->identity;
}

void tls_identity_unref(struct tls_identity *i)
{
    struct holder *h = i != NULL ? CONTAINER(i, struct holder, identity) : NULL;
    if (h == NULL || --h->refs > 0)
        return;
    struct holder **at = bucket_of(h->digest);
    while (*at != h)
        at = &(*at)->next;
    *at = h->next;
    X509_free(i->cert);
    EVP_PKEY_free(i->key);
    sk_X509_pop_free(i->chain, X509_free);
    mem_free(h);
}
