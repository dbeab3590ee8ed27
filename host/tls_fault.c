/* See tls_fault.h. */
#include "tls_fault.h"

#include <openssl/err.h>
#include <openssl/x509v3.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { NAME_MAX_TEXT = 96, NAMES_MAX_TEXT = 160 };

static void say(struct tls_fault *f, enum tls_fault_kind kind, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void say(struct tls_fault *f, enum tls_fault_kind kind, const char *format, ...)
{
    va_list ap;
    f->kind = kind;
    va_start(ap, format);
    vsnprintf(f->text, sizeof f->text, format, ap);
    va_end(ap);
}

/* --- out of certificates --- */

static void printable(char *text)
{
    for (; *text != '\0'; text++) {
        if ((unsigned char)*text < 0x20 || (unsigned char)*text >= 0x7f || *text == '"')
            *text = '?';
    }
}

/* "CN" of a name where there is one, else all of it. */
static void name_text(const X509_NAME *name, char *out, size_t size)
{
    BIO *b = BIO_new(BIO_s_mem());
    out[0] = '\0';
    if (b == NULL)
        return;
    char *p = NULL;
    int at = X509_NAME_get_index_by_NID((X509_NAME *)(uintptr_t)name, NID_commonName, -1);
    if (at >= 0)
        ASN1_STRING_print_ex(b, X509_NAME_ENTRY_get_data(X509_NAME_get_entry(name, at)),
                             ASN1_STRFLGS_RFC2253);
    else
        X509_NAME_print_ex(b, name, 0, XN_FLAG_ONELINE);
    long n = BIO_get_mem_data(b, &p);
    snprintf(out, size, "%.*s", (int)n, p != NULL ? p : "");
    BIO_free(b);
    printable(out);
}

static void time_text(const ASN1_TIME *t, char *out, size_t size)
{
    struct tm tm;
    if (ASN1_TIME_to_tm(t, &tm) == 1)
        strftime(out, size, "%Y-%m-%d %H:%M:%S UTC", &tm);
    else
        snprintf(out, size, "an unreadable time");
}

static void add_name(char *out, size_t size, const char *name, int n)
{
    size_t at = strlen(out);
    snprintf(out + at, size - at, "%s%.*s", at == 0 ? "" : ", ", n, name);
}

/* The DNS names and addresses that a certificate is for (RFC 6125: the common name counts for
 * nothing). */
static void names_text(X509 *cert, char *out, size_t size)
{
    GENERAL_NAMES *names = X509_get_ext_d2i(cert, NID_subject_alt_name, NULL, NULL);
    out[0] = '\0';
    for (int i = 0; names != NULL && i < sk_GENERAL_NAME_num(names); i++) {
        const GENERAL_NAME *g = sk_GENERAL_NAME_value(names, i);
        if (g->type == GEN_DNS) {
            add_name(out, size, (const char *)ASN1_STRING_get0_data(g->d.dNSName),
                     ASN1_STRING_length(g->d.dNSName));
        } else if (g->type == GEN_IPADD) {
            char *ip = i2s_ASN1_OCTET_STRING(NULL, g->d.iPAddress); /* hexadecimal, the v6 way */
            const unsigned char *p = ASN1_STRING_get0_data(g->d.iPAddress);
            char v4[16];
            snprintf(v4, sizeof v4, "%d.%d.%d.%d", p[0], p[1], p[2], p[3]);
            const char *text = ASN1_STRING_length(g->d.iPAddress) == 4 ? v4 : ip;
            if (text != NULL)
                add_name(out, size, text, (int)strlen(text));
            OPENSSL_free(ip);
        }
    }
    GENERAL_NAMES_free(names);
    printable(out);
}

static void say_names(struct tls_fault *f, X509 *cert, const char *name)
{
    char names[NAMES_MAX_TEXT];
    names_text(cert, names, sizeof names);
    if (names[0] == '\0')
        say(f, TLS_FAULT_CERTIFICATE, "its certificate names no host, and %s was asked for", name);
    else
        say(f, TLS_FAULT_CERTIFICATE, "its certificate is for %s, not for %s", names, name);
}

void tls_fault_of_chain(struct tls_fault *f, X509_STORE_CTX *chain, const char *name)
{
    char subject[NAME_MAX_TEXT], issuer[NAME_MAX_TEXT], when[40];
    int err = X509_STORE_CTX_get_error(chain);
    X509 *cert = X509_STORE_CTX_get_current_cert(chain);
    if (cert == NULL) {
        say(f, TLS_FAULT_CERTIFICATE, "its certificate is not accepted: %s",
            X509_verify_cert_error_string(err));
        return;
    }
    name_text(X509_get_subject_name(cert), subject, sizeof subject);
    name_text(X509_get_issuer_name(cert), issuer, sizeof issuer);
    switch (err) {
    case X509_V_ERR_CERT_HAS_EXPIRED:
        time_text(X509_get0_notAfter(cert), when, sizeof when);
        say(f, TLS_FAULT_CERTIFICATE, "the certificate \"%s\" expired on %s", subject, when);
        return;
    case X509_V_ERR_CERT_NOT_YET_VALID:
        time_text(X509_get0_notBefore(cert), when, sizeof when);
        say(f, TLS_FAULT_CERTIFICATE, "the certificate \"%s\" is not yet valid, but from %s on",
            subject, when);
        return;
    case X509_V_ERR_HOSTNAME_MISMATCH:
    case X509_V_ERR_IP_ADDRESS_MISMATCH: say_names(f, cert, name != NULL ? name : ""); return;
    case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT:
        say(f, TLS_FAULT_CERTIFICATE,
            "its certificate \"%s\" is self-signed and not among the trusted ones", subject);
        return;
    case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN:
        say(f, TLS_FAULT_CERTIFICATE,
            "its certificates lead to \"%s\", which is no trusted authority", subject);
        return;
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
    case X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE:
        say(f, TLS_FAULT_CERTIFICATE,
            "the certificate \"%s\" was issued by \"%s\", which is no trusted authority", subject,
            issuer);
        return;
    case X509_V_ERR_CERT_REVOKED:
        say(f, TLS_FAULT_CERTIFICATE, "the certificate \"%s\" was revoked by \"%s\"", subject,
            issuer);
        return;
    default:
        say(f, TLS_FAULT_CERTIFICATE, "the certificate \"%s\" is not accepted: %s", subject,
            X509_verify_cert_error_string(err));
    }
}

/* --- out of the error queue --- */

/* OpenSSL's table lacks the newer ones (RFC 8446, section 6). */
static const char *alert_text(int alert)
{
    switch (alert) {
    case TLS13_AD_MISSING_EXTENSION: return "missing extension";
    case TLS13_AD_CERTIFICATE_REQUIRED: return "certificate required";
    case TLS1_AD_NO_APPLICATION_PROTOCOL: return "no application protocol";
    default: return SSL_alert_desc_string_long(alert);
    }
}

void tls_fault_of_queue(struct tls_fault *f)
{
    unsigned long e = ERR_peek_error();
    int reason = ERR_GET_LIB(e) == ERR_LIB_SSL ? ERR_GET_REASON(e) : 0;
    if (f->kind != TLS_FAULT_NONE) {
        ERR_clear_error();
        return;
    }
    if (reason >= SSL_AD_REASON_OFFSET && reason < SSL_AD_REASON_OFFSET + 256)
        say(f, TLS_FAULT_REFUSED, "it refused with the TLS alert \"%s\"",
            alert_text(reason - SSL_AD_REASON_OFFSET));
    else if (reason == SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE)
        say(f, TLS_FAULT_CERTIFICATE, "a certificate is required, and none came");
    else if (reason == SSL_R_HTTP_REQUEST)
        say(f, TLS_FAULT_HTTP, "a plain HTTP request came instead of TLS");
    else if (reason == SSL_R_WRONG_VERSION_NUMBER || reason == SSL_R_HTTPS_PROXY_REQUEST)
        say(f, TLS_FAULT_NOT_TLS, "what it sent is not TLS");
    else if (e != 0)
        say(f, TLS_FAULT_PROTOCOL, "TLS failed: %s",
            ERR_reason_error_string(e) != NULL ? ERR_reason_error_string(e) : "unknown error");
    else
        say(f, TLS_FAULT_PROTOCOL, "TLS failed");
    ERR_clear_error();
}

void tls_fault_last_words(char *out, size_t size)
{
    unsigned long e = ERR_peek_last_error();
    const char *reason = e != 0 ? ERR_reason_error_string(e) : NULL;
    snprintf(out, size, "%s", reason != NULL ? reason : "it cannot be used");
    ERR_clear_error();
}
