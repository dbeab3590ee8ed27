/* See tls_server.h. One SSL_CTX a listener: a connection is given the certificate of its name by a
 * callback, so 10,000 certificates cost no more than their bytes. What the callbacks need hangs on
 * the SSL_CTX and goes with it, when the last connection of it has gone. */
#include "tls_server.h"

#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/x509v3.h>
#include <string.h>

#include "mem.h"
#include "tls_fault.h"

enum { SESSION_S = 7200, CHAIN_MAX = 65536, CA_NAMES_MAX = 100, CIPHER_BITS_MIN = 128 };

/* Mozilla's "intermediate" of 2023 without finite-field DHE, which is slow and lets a client make
 * us work for little. TLS 1.3 has OpenSSL's own three suites. */
static const char CIPHERS[] =
    "ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-RSA-AES128-GCM-SHA256:ECDHE-ECDSA-AES256-GCM-SHA384:"
    "ECDHE-RSA-AES256-GCM-SHA384:ECDHE-ECDSA-CHACHA20-POLY1305:ECDHE-RSA-CHACHA20-POLY1305";
static const char GROUPS[] = "X25519:P-256:P-384";

struct server {
    struct tls_store *store;
    struct tls_tickets *tickets;
};

static void on_context_free(void *parent, void *p, CRYPTO_EX_DATA *data, int index, long l, void *q)
{
    struct server *s = p;
    (void)parent, (void)data, (void)index, (void)l, (void)q;
    if (s == NULL)
        return;
    tls_store_free(s->store);
    tls_tickets_free(s->tickets);
    mem_free(s);
}

static int slot(void)
{
    static int index = -1;
    if (index < 0)
        index = SSL_CTX_get_ex_new_index(0, NULL, NULL, NULL, on_context_free);
    return index;
}

static struct server *server_of(const SSL_CTX *c)
{
    return SSL_CTX_get_ex_data(c, slot());
}

/* --- a handshake --- */

/* Says whether we know the name; one that we do not know is served by the first certificate, and it
 * is the client's to be content with it. */
static int on_server_name(SSL *ssl, int *alert, void *arg)
{
    const struct server *s = arg;
    (void)alert;
    return tls_store_find(s->store, ssl) >= 0 ? SSL_TLSEXT_ERR_OK : SSL_TLSEXT_ERR_NOACK;
}

static int on_certificate(SSL *ssl, void *arg)
{
    return tls_store_use(((struct server *)arg)->store, ssl);
}

/* RFC 7301: http/1.1 for a client that names protocols; one that cannot speak it is refused. */
static int on_alpn(SSL *ssl, const unsigned char **out, unsigned char *n, const unsigned char *in,
                   unsigned size, void *arg)
{
    static const unsigned char http[] = "\x08http/1.1";
    unsigned char *chosen = NULL;
    (void)ssl, (void)arg;
    if (SSL_select_next_proto(&chosen, n, http, sizeof http - 1, in, size) !=
        OPENSSL_NPN_NEGOTIATED)
        return SSL_TLSEXT_ERR_ALERT_FATAL;
    *out = chosen;
    return SSL_TLSEXT_ERR_OK;
}

/* A session does not outlive the client's certificate that it was made with. */
static SSL_TICKET_RETURN on_resume(SSL *ssl, SSL_SESSION *session, const unsigned char *name,
                                   size_t n, SSL_TICKET_STATUS status, void *arg)
{
    (void)ssl, (void)name, (void)n, (void)arg;
    if (status != SSL_TICKET_SUCCESS && status != SSL_TICKET_SUCCESS_RENEW)
        return SSL_TICKET_RETURN_IGNORE_RENEW;
    X509 *peer = SSL_SESSION_get0_peer(session);
    if (peer != NULL && X509_cmp_current_time(X509_get0_notAfter(peer)) <= 0)
        return SSL_TICKET_RETURN_IGNORE_RENEW;
    return status == SSL_TICKET_SUCCESS ? SSL_TICKET_RETURN_USE : SSL_TICKET_RETURN_USE_RENEW;
}

/* --- a context --- */

/* One suite by its name, and none that hides nothing or lets anybody be us. */
static bool usable(SSL_CTX *c, const char *name)
{
    if (strncmp(name, "TLS_", 4) == 0)
        return SSL_CTX_set_ciphersuites(c, name) == 1;
    if (SSL_CTX_set_cipher_list(c, name) != 1)
        return false;
    STACK_OF(SSL_CIPHER) *all = SSL_CTX_get_ciphers(c);
    for (int i = 0; i < sk_SSL_CIPHER_num(all); i++) {
        const SSL_CIPHER *one = sk_SSL_CIPHER_value(all, i);
        if (strcmp(SSL_CIPHER_get_name(one), name) == 0)
            return SSL_CIPHER_get_auth_nid(one) != NID_auth_null &&
                   SSL_CIPHER_get_bits(one, NULL) >= CIPHER_BITS_MIN;
    }
    return false;
}

/* Names are tried one by one: OpenSSL passes over those that it does not know in a list. Those of
 * TLS 1.3 are a list of their own. */
static int set_ciphers(SSL_CTX *c, const struct tls_server_options *o, struct buf *faults)
{
    struct buf old, new;
    int err = 0;
    buf_init(&old);
    buf_init(&new);
    for (uint32_t i = 0; i < o->nciphers; i++) {
        const char *name = o->ciphers[i];
        struct buf *list = strncmp(name, "TLS_", 4) == 0 ? &new : &old;
        if (!usable(c, name)) {
            buf_printf(faults, "%s.ciphers[%u]: no cipher suite %s can be used\n", o->path, i + 1,
                       name);
            err = -1;
        }
        buf_printf(list, "%s%s", list->n > 0 ? ":" : "", name);
    }
    buf_add(&old, "", 1);
    buf_add(&new, "", 1);
    if (err == 0 && o->nciphers > 0 && old.n == 1 && !o->tls13) {
        buf_printf(faults, "%s.ciphers: names none of TLS 1.2, which min_version allows\n",
                   o->path);
        err = -1;
    }
    SSL_CTX_set_cipher_list(c, old.n > 1 ? old.p : CIPHERS);
    if (new.n > 1)
        SSL_CTX_set_ciphersuites(c, new.p);
    buf_deinit(&old);
    buf_deinit(&new);
    ERR_clear_error();
    return err;
}

/* Tells clients whose certificates are wanted; too many names would be more than a handshake holds,
 * and none means any. */
static void name_authorities(SSL_CTX *c)
{
    STACK_OF(X509_OBJECT) *all = X509_STORE_get0_objects(SSL_CTX_get_cert_store(c));
    if (sk_X509_OBJECT_num(all) > CA_NAMES_MAX)
        return;
    for (int i = 0; i < sk_X509_OBJECT_num(all); i++) {
        X509 *cert = X509_OBJECT_get0_X509(sk_X509_OBJECT_value(all, i));
        if (cert != NULL && X509_check_ca(cert) > 0)
            SSL_CTX_add_client_CA(c, cert);
    }
}

/* A trusted certificate need not be an authority's own root: a single client's is enough. */
static int ask_clients(SSL_CTX *c, const struct tls_server_options *o, struct buf *faults)
{
    struct tls_pem_fault f;
    if (o->ca.p == NULL)
        return 0;
    if (tls_pem_trust(SSL_CTX_get_cert_store(c), o->ca, &f) != 0) {
        buf_printf(faults, "%s.client.ca: %s\n", o->path, f.text);
        return -1;
    }
    X509_STORE_set_flags(SSL_CTX_get_cert_store(c), X509_V_FLAG_PARTIAL_CHAIN);
    name_authorities(c);
    SSL_CTX_set_verify(c, SSL_VERIFY_PEER | (o->required ? SSL_VERIFY_FAIL_IF_NO_PEER_CERT : 0),
                       NULL);
    return 0;
}

/* A session is resumed only where the same clients are trusted in the same way, so that who was
 * taken off the list has no way around it. */
static void bind_sessions(SSL_CTX *c, const struct tls_server_options *o)
{
    unsigned char digest[32];
    EVP_MD_CTX *md = EVP_MD_CTX_new();
    EVP_DigestInit_ex(md, EVP_sha256(), NULL);
    EVP_DigestUpdate(md, o->required ? "required" : "optional", 8);
    if (o->ca.p != NULL)
        EVP_DigestUpdate(md, o->ca.p, o->ca.n);
    EVP_DigestFinal_ex(md, digest, NULL);
    EVP_MD_CTX_free(md);
    SSL_CTX_set_session_id_context(c, digest, sizeof digest);
}

/* No session is kept here: a client brings its own, in a ticket. */
static int set_tickets(SSL_CTX *c, struct server *s, const struct tls_server_options *o,
                       struct buf *faults)
{
    const char *why = NULL;
    SSL_CTX_set_session_cache_mode(c, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_timeout(c, SESSION_S);
    bind_sessions(c, o);
    if (o->tickets && o->ticket_keys.p != NULL) {
        s->tickets = tls_tickets_of_text(o->ticket_keys, &why);
        if (s->tickets == NULL) {
            buf_printf(faults, "%s.ticket_keys: %s\n", o->path, why);
            return -1;
        }
    } else if (o->tickets && o->ring != NULL) {
        s->tickets = tls_tickets_of_ring(o->ring);
    }
    if (s->tickets == NULL) {
        SSL_CTX_set_options(c, SSL_OP_NO_TICKET);
        SSL_CTX_set_num_tickets(c, 0);
        return 0;
    }
    tls_tickets_use(c, s->tickets);
    SSL_CTX_set_session_ticket_cb(c, NULL, on_resume, NULL);
    return 0;
}

struct tls_context *tls_server_new(const struct tls_server_options *o, struct buf *faults,
                                   struct buf *warnings)
{
    SSL_CTX *c = SSL_CTX_new(TLS_server_method());
    if (c == NULL) {
        buf_printf(faults, "%s: OpenSSL cannot make a context\n", o->path);
        return NULL;
    }
    struct server *s = mem_zalloc(sizeof *s);
    SSL_CTX_set_ex_data(c, slot(), s);
    SSL_CTX_set_min_proto_version(c, o->tls13 ? TLS1_3_VERSION : TLS1_2_VERSION);
    SSL_CTX_set1_groups_list(c, GROUPS);
    SSL_CTX_set_max_cert_list(c, CHAIN_MAX);
    s->store = tls_store_new(o->certificates, o->ncertificates, o->valid_now, faults, warnings);
    int err = s->store != NULL ? 0 : -1;
    if (err == 0 && tls_store_set_first(s->store, c) != 1) {
        buf_printf(faults, "%s: the first certificate cannot be used\n", o->path);
        err = -1;
    }
    if (set_ciphers(c, o, faults) != 0)
        err = -1;
    if (ask_clients(c, o, faults) != 0)
        err = -1;
    if (set_tickets(c, s, o, faults) != 0)
        err = -1;
    if (err != 0) {
        SSL_CTX_free(c);
        return NULL;
    }
    SSL_CTX_set_tlsext_servername_callback(c, on_server_name);
    SSL_CTX_set_tlsext_servername_arg(c, s);
    SSL_CTX_set_cert_cb(c, on_certificate, s);
    SSL_CTX_set_alpn_select_cb(c, on_alpn, NULL);
    return tls_server_context(c);
}

int64_t tls_server_expires(const struct tls_context *c)
{
    return tls_store_expires(server_of(tls_context_ssl(c))->store);
}
