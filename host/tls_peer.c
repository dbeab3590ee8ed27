/* See tls_peer.h. */
#include "tls_peer.h"

#include <arpa/inet.h>
#include <openssl/bn.h>
#include <openssl/evp.h>
#include <openssl/x509v3.h>

#include "arena.h"
#include "container.h"
#include "encoding.h"
#include "mem.h"

struct holder {
    struct tls_peer peer;
    struct tls_peer_certificate certificate;
    struct arena arena; /* of the certificate */
    char *sni;
    unsigned refs;
};

static const char *name_text(struct arena *a, const X509_NAME *name)
{
    BIO *b = BIO_new(BIO_s_mem());
    char *p = NULL;
    X509_NAME_print_ex(b, name, 0, XN_FLAG_RFC2253 & ~ASN1_STRFLGS_ESC_MSB);
    long n = BIO_get_mem_data(b, &p);
    const char *text = arena_dup(a, (struct slice){ n > 0 ? p : "", (size_t)(n > 0 ? n : 0) }).p;
    BIO_free(b);
    return text;
}

static const char *serial_text(struct arena *a, X509 *cert)
{
    BIGNUM *n = ASN1_INTEGER_to_BN(X509_get0_serialNumber(cert), NULL);
    char *hex = n != NULL ? BN_bn2hex(n) : NULL;
    const char *text = arena_dup(a, slice_of(hex != NULL ? hex : "")).p;
    OPENSSL_free(hex);
    BN_free(n);
    return text;
}

static const char *fingerprint_text(struct arena *a, X509 *cert)
{
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned n = 0;
    char hex[2 * sizeof digest];
    X509_digest(cert, EVP_sha256(), digest, &n);
    size_t size = encoding_hex((struct slice){ (const char *)digest, n }, hex);
    return arena_dup(a, (struct slice){ hex, size }).p;
}

/* A name of printable characters; others are left out, since they are there to deceive. */
static const char *printed(struct arena *a, const char *kind, const ASN1_STRING *s)
{
    const unsigned char *p = ASN1_STRING_get0_data(s);
    int n = ASN1_STRING_length(s);
    for (int i = 0; i < n; i++) {
        if (p[i] <= 0x20 || p[i] >= 0x7f)
            return NULL;
    }
    return arena_printf(a, "%s:%.*s", kind, n, (const char *)p).p;
}

static const char *general_name(struct arena *a, const GENERAL_NAME *g)
{
    char text[INET6_ADDRSTRLEN];
    switch (g->type) {
    case GEN_DNS: return printed(a, "DNS", g->d.dNSName);
    case GEN_URI: return printed(a, "URI", g->d.uniformResourceIdentifier);
    case GEN_EMAIL: return printed(a, "email", g->d.rfc822Name);
    case GEN_IPADD: {
        int n = ASN1_STRING_length(g->d.iPAddress);
        if ((n != 4 && n != 16) ||
            inet_ntop(n == 4 ? AF_INET : AF_INET6, ASN1_STRING_get0_data(g->d.iPAddress), text,
                      sizeof text) == NULL)
            return NULL;
        return arena_printf(a, "IP:%s", text).p;
    }
    default: return NULL;
    }
}

static void read_names(struct holder *h, X509 *cert)
{
    GENERAL_NAMES *all = X509_get_ext_d2i(cert, NID_subject_alt_name, NULL, NULL);
    int n = all != NULL ? sk_GENERAL_NAME_num(all) : 0;
    n = n > TLS_PEER_NAMES_MAX ? TLS_PEER_NAMES_MAX : n;
    h->certificate.names = arena_alloc(&h->arena, (size_t)(n + 1) * sizeof(char *));
    for (int i = 0; i < n; i++) {
        const char *text = general_name(&h->arena, sk_GENERAL_NAME_value(all, i));
        if (text != NULL)
            h->certificate.names[h->certificate.nnames++] = text;
    }
    GENERAL_NAMES_free(all);
}

struct tls_peer *tls_peer_new(SSL *ssl)
{
    struct holder *h = mem_zalloc(sizeof *h);
    const char *sni = SSL_get_servername(ssl, TLSEXT_NAMETYPE_host_name);
    X509 *cert = SSL_get0_peer_certificate(ssl);
    const SSL_CIPHER *cipher = SSL_get_current_cipher(ssl);
    h->refs = 1;
    arena_init(&h->arena);
    h->peer.version = SSL_version(ssl) == TLS1_3_VERSION ? "1.3" : "1.2";
    h->peer.cipher = cipher != NULL ? SSL_CIPHER_standard_name(cipher) : "";
    h->peer.sni = h->sni = sni != NULL ? mem_strdup(sni) : NULL;
    h->peer.resumed = SSL_session_reused(ssl) == 1;
    if (cert == NULL)
        return &h->peer;
    h->certificate.subject = name_text(&h->arena, X509_get_subject_name(cert));
    h->certificate.issuer = name_text(&h->arena, X509_get_issuer_name(cert));
    h->certificate.serial = serial_text(&h->arena, cert);
    h->certificate.fingerprint = fingerprint_text(&h->arena, cert);
    read_names(h, cert);
    h->peer.certificate = &h->certificate;
    return &h->peer;
}

struct tls_peer *tls_peer_ref(struct tls_peer *p)
{
    if (p != NULL)
        CONTAINER(p, struct holder, peer)->refs++;
    return p;
}

void tls_peer_unref(struct tls_peer *p)
{
    struct holder *h = p != NULL ? CONTAINER(p, struct holder, peer) : NULL;
    if (h == NULL || --h->refs > 0)
        return;
    arena_deinit(&h->arena);
    mem_free(h->sni);
    mem_free(h);
}
