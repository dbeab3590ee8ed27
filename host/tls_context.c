/* See tls_context.h. The list of client contexts holds no references: a context leaves it when its
 * last owner does. A process has one loop, so nothing here is locked. */
#include "tls_context.h"

#include <openssl/err.h>
#include <openssl/evp.h>
#include <string.h>

#include "mem.h"
#include "snapshot.h"
#include "tls_fault.h"

enum { DIGEST = 32 };

struct tls_context {
    struct tls_context *next; /* of the client contexts */
    SSL_CTX *ssl;
    unsigned refs;
    bool server, verifies;
    unsigned char digest[DIGEST]; /* of a client's options */
};

static struct tls_context *clients;

/* --- the system's authorities --- */

/* Read once for all contexts; anew where the file or the folder has changed since. */
static struct {
    X509_STORE *store;
    char stamps[2][SNAPSHOT_STAMP];
    unsigned number; /* of the reading */
} authorities;

static const char *from_env(const char *name, const char *otherwise)
{
    const char *value = getenv(name);
    return value != NULL ? value : otherwise;
}

static X509_STORE *system_store(void)
{
    char stamps[2][SNAPSHOT_STAMP];
    snapshot_stamp(from_env(X509_get_default_cert_file_env(), X509_get_default_cert_file()),
                   stamps[0]);
    snapshot_stamp(from_env(X509_get_default_cert_dir_env(), X509_get_default_cert_dir()),
                   stamps[1]);
    if (authorities.store != NULL && strcmp(stamps[0], authorities.stamps[0]) == 0 &&
        strcmp(stamps[1], authorities.stamps[1]) == 0)
        return authorities.store;
    X509_STORE_free(authorities.store);
    authorities.store = X509_STORE_new();
    if (authorities.store == NULL || X509_STORE_set_default_paths(authorities.store) != 1)
        return NULL;
    memcpy(authorities.stamps, stamps, sizeof stamps);
    authorities.number++;
    return authorities.store;
}

/* --- clients --- */

static void add_part(EVP_MD_CTX *md, const void *p, size_t n)
{
    uint64_t size = n; /* before each part, so that no two lists of parts look the same */
    EVP_DigestUpdate(md, &size, sizeof size);
    if (n > 0)
        EVP_DigestUpdate(md, p, n);
}

static void digest_of(const struct tls_client_options *o, unsigned char out[DIGEST])
{
    unsigned char flags[] = { o->insecure, o->http, o->ca.p != NULL, o->cert.p != NULL };
    EVP_MD_CTX *md = EVP_MD_CTX_new();
    if (o->ca.p == NULL && !o->insecure)
        system_store();
    EVP_DigestInit_ex(md, EVP_sha256(), NULL);
    add_part(md, flags, sizeof flags);
    add_part(md, &authorities.number, o->ca.p == NULL ? sizeof authorities.number : 0);
    add_part(md, o->ca.p, o->ca.n);
    add_part(md, o->cert.p, o->cert.n);
    add_part(md, o->key.p, o->key.n);
    EVP_DigestFinal_ex(md, out, NULL);
    EVP_MD_CTX_free(md);
}

static int trust(SSL_CTX *c, const struct tls_client_options *o, struct tls_pem_fault *f)
{
    if (o->insecure) {
        SSL_CTX_set_verify(c, SSL_VERIFY_NONE, NULL);
        return 0;
    }
    if (o->ca.p != NULL)
        return tls_pem_trust(SSL_CTX_get_cert_store(c), o->ca, f);
    X509_STORE *store = system_store();
    if (store == NULL) {
        f->key = "ca";
        snprintf(f->text, sizeof f->text, "the system's authorities cannot be read");
        return -1;
    }
    SSL_CTX_set1_cert_store(c, store);
    return 0;
}

/* What holds for both ends. Buffers are given back while a connection is idle: 10,000 of them cost
 * little. */
static void prepare(SSL_CTX *c)
{
    SSL_CTX_set_min_proto_version(c, TLS1_2_VERSION);
    SSL_CTX_set_options(c, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
    SSL_CTX_set_mode(c, SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                            SSL_MODE_ENABLE_PARTIAL_WRITE);
}

static SSL_CTX *client_ssl(const struct tls_client_options *o, struct tls_pem_fault *f)
{
    static const unsigned char http[] = "\x08http/1.1";
    SSL_CTX *c = SSL_CTX_new(TLS_client_method());
    if (c == NULL) {
        f->key = "ca";
        tls_fault_last_words(f->text, sizeof f->text);
        return NULL;
    }
    prepare(c);
    /* Sessions are kept by those who dial, not in a table of OpenSSL's. */
    SSL_CTX_set_session_cache_mode(c, SSL_SESS_CACHE_CLIENT | SSL_SESS_CACHE_NO_INTERNAL);
    SSL_CTX_set_verify(c, SSL_VERIFY_PEER, NULL);
    if (o->http)
        SSL_CTX_set_alpn_protos(c, http, sizeof http - 1);
    if (trust(c, o, f) == 0 && (o->cert.p == NULL || tls_pem_identity(c, o->cert, o->key, f) == 0))
        return c;
    SSL_CTX_free(c);
    return NULL;
}

struct tls_context *tls_client_context(const struct tls_client_options *o, struct tls_pem_fault *f)
{
    unsigned char digest[DIGEST];
    digest_of(o, digest);
    for (struct tls_context *c = clients; c != NULL; c = c->next) {
        if (memcmp(c->digest, digest, DIGEST) == 0)
            return tls_context_ref(c);
    }
    SSL_CTX *ssl = client_ssl(o, f);
    if (ssl == NULL)
        return NULL;
    struct tls_context *c = mem_zalloc(sizeof *c);
    c->ssl = ssl;
    c->refs = 1;
    c->verifies = !o->insecure;
    memcpy(c->digest, digest, DIGEST);
    c->next = clients;
    clients = c;
    return c;
}

/* --- any --- */

struct tls_context *tls_server_context(SSL_CTX *ssl)
{
    struct tls_context *c = mem_zalloc(sizeof *c);
    int min = (int)SSL_CTX_get_min_proto_version(ssl);
    prepare(ssl);
    if (min > TLS1_2_VERSION)
        SSL_CTX_set_min_proto_version(ssl, min);
    c->ssl = ssl;
    c->refs = 1;
    c->server = true;
    c->verifies = SSL_CTX_get_verify_mode(ssl) != SSL_VERIFY_NONE;
    return c;
}

struct tls_context *tls_context_ref(struct tls_context *c)
{
    c->refs++;
    return c;
}

void tls_context_unref(struct tls_context *c)
{
    if (c == NULL || --c->refs > 0)
        return;
    for (struct tls_context **at = &clients; *at != NULL; at = &(*at)->next) {
        if (*at == c) {
            *at = c->next;
            break;
        }
    }
    SSL_CTX_free(c->ssl);
    mem_free(c);
}

SSL_CTX *tls_context_ssl(const struct tls_context *c)
{
    return c->ssl;
}

bool tls_context_is_server(const struct tls_context *c)
{
    return c->server;
}

bool tls_context_verifies(const struct tls_context *c)
{
    return c->verifies;
}
