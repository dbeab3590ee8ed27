/* See tls_tickets.h. A ticket is encrypted by AES-256-CBC and authenticated by HMAC-SHA-256, as RFC
 * 5077, section 4, recommends. */
#include "tls_tickets.h"

#include <openssl/core_names.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>
#include <string.h>

#include "mem.h"

enum { SECRET_MIN = 32 };

struct tls_tickets {
    const struct ticket_ring *ring; /* else: */
    struct ticket_key *own;
    unsigned n;
};

int ticket_ring_rotate(struct ticket_ring *r)
{
    uint64_t next = atomic_load(&r->newest) + 1;
    struct ticket_key *k = &r->slots[next % TICKET_RING];
    if (RAND_priv_bytes(k->cipher, sizeof k->cipher) != 1 ||
        RAND_priv_bytes(k->mac, sizeof k->mac) != 1 || RAND_bytes(k->name, sizeof k->name) != 1)
        return -1;
    atomic_store(&r->newest, next);
    OPENSSL_cleanse(&r->slots[(next + 1) % TICKET_RING], sizeof *k); /* nobody needs it any more */
    return 0;
}

struct tls_tickets *tls_tickets_of_ring(const struct ticket_ring *r)
{
    struct tls_tickets *t = mem_zalloc(sizeof *t);
    t->ring = r;
    return t;
}

/* --- out of a file --- */

static void derive(struct slice secret, const char *label, unsigned char *out, size_t n)
{
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned size = 0;
    HMAC(EVP_sha256(), secret.p, (int)secret.n, (const unsigned char *)label, strlen(label), digest,
         &size);
    memcpy(out, digest, n);
    OPENSSL_cleanse(digest, sizeof digest);
}

static struct ticket_key key_of(struct slice secret)
{
    struct ticket_key k;
    derive(secret, "tollgate session ticket name", k.name, sizeof k.name);
    derive(secret, "tollgate session ticket cipher", k.cipher, sizeof k.cipher);
    derive(secret, "tollgate session ticket mac", k.mac, sizeof k.mac);
    return k;
}

static struct slice trimmed(struct slice s)
{
    while (s.n > 0 && (s.p[0] == ' ' || s.p[0] == '\t'))
        s = (struct slice){ s.p + 1, s.n - 1 };
    while (s.n > 0 && (s.p[s.n - 1] == ' ' || s.p[s.n - 1] == '\t' || s.p[s.n - 1] == '\r'))
        s.n--;
    return s;
}

/* The next line; false at the end. */
static bool next_line(struct slice *text, struct slice *line)
{
    if (text->n == 0)
        return false;
    const char *end = memchr(text->p, '\n', text->n);
    size_t n = end != NULL ? (size_t)(end - text->p) : text->n, skip = end != NULL ? n + 1 : n;
    *line = trimmed((struct slice){ text->p, n });
    *text = (struct slice){ text->p + skip, text->n - skip };
    return true;
}

struct tls_tickets *tls_tickets_of_text(struct slice text, const char **why)
{
    struct tls_tickets *t = mem_zalloc(sizeof *t);
    struct slice line;
    *why = NULL;
    t->own = mem_zalloc(TICKET_FILE_KEYS * sizeof *t->own);
    while (*why == NULL && next_line(&text, &line)) {
        if (line.n == 0 || line.p[0] == '#')
            continue;
        if (line.n < SECRET_MIN)
            *why = "a secret in it has fewer than 32 characters: openssl rand -hex 32 makes one";
        else if (t->n == TICKET_FILE_KEYS)
            *why = "holds more than 16 secrets";
        else
            t->own[t->n++] = key_of(line);
    }
    if (*why == NULL && t->n == 0)
        *why = "holds no secret: write one a line, as openssl rand -hex 32 makes it";
    if (*why == NULL)
        return t;
    tls_tickets_free(t);
    return NULL;
}

void tls_tickets_free(struct tls_tickets *t)
{
    if (t == NULL)
        return;
    if (t->own != NULL)
        OPENSSL_cleanse(t->own, TICKET_FILE_KEYS * sizeof *t->own);
    mem_free(t->own);
    mem_free(t);
}

/* --- finding one --- */

const struct ticket_key *tls_tickets_newest(const struct tls_tickets *t)
{
    if (t->ring == NULL)
        return &t->own[0];
    uint64_t newest = atomic_load(&t->ring->newest);
    return newest > 0 ? &t->ring->slots[newest % TICKET_RING] : NULL;
}

const struct ticket_key *tls_tickets_find(const struct tls_tickets *t,
                                          const unsigned char name[TICKET_NAME])
{
    if (t->ring == NULL) {
        for (unsigned i = 0; i < t->n; i++) {
            if (memcmp(t->own[i].name, name, TICKET_NAME) == 0)
                return &t->own[i];
        }
        return NULL;
    }
    uint64_t newest = atomic_load(&t->ring->newest);
    for (uint64_t n = newest; n > 0 && newest - n < 2; n--) {
        const struct ticket_key *k = &t->ring->slots[n % TICKET_RING];
        if (memcmp(k->name, name, TICKET_NAME) == 0)
            return k;
    }
    return NULL;
}

/* --- for OpenSSL --- */

/* Fetched once: by name it costs a look-up under a lock each time. */
static const EVP_CIPHER *cipher(void)
{
    static EVP_CIPHER *c;
    if (c == NULL)
        c = EVP_CIPHER_fetch(NULL, "AES-256-CBC", NULL);
    return c;
}

static bool set_mac(EVP_MAC_CTX *mac, const struct ticket_key *k)
{
    static char sha256[] = "SHA256";
    OSSL_PARAM params[] = {
        OSSL_PARAM_construct_octet_string(OSSL_MAC_PARAM_KEY, (void *)(uintptr_t)k->mac,
                                          sizeof k->mac),
        OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, sha256, 0),
        OSSL_PARAM_construct_end(),
    };
    return EVP_MAC_CTX_set_params(mac, params) == 1;
}

static int slot(void)
{
    static int index = -1;
    if (index < 0)
        index = SSL_CTX_get_ex_new_index(0, NULL, NULL, NULL, NULL);
    return index;
}

/* 0: no ticket is made, or the client's is not taken (a whole handshake follows); 2: taken, and a
 * newer one is to be given. */
static int on_ticket(SSL *ssl, unsigned char *name, unsigned char *iv, EVP_CIPHER_CTX *c,
                     EVP_MAC_CTX *mac, int make)
{
    const struct tls_tickets *t = SSL_CTX_get_ex_data(SSL_get_SSL_CTX(ssl), slot());
    const struct ticket_key *newest = tls_tickets_newest(t);
    if (make) {
        if (newest == NULL || RAND_bytes(iv, EVP_CIPHER_get_iv_length(cipher())) != 1)
            return 0;
        memcpy(name, newest->name, TICKET_NAME);
        return EVP_EncryptInit_ex(c, cipher(), NULL, newest->cipher, iv) == 1 &&
                       set_mac(mac, newest)
                   ? 1
                   : -1;
    }
    const struct ticket_key *k = tls_tickets_find(t, name);
    if (k == NULL)
        return 0;
    if (EVP_DecryptInit_ex(c, cipher(), NULL, k->cipher, iv) != 1 || !set_mac(mac, k))
        return -1;
    return k == newest ? 1 : 2;
}

void tls_tickets_use(SSL_CTX *c, struct tls_tickets *t)
{
    SSL_CTX_set_ex_data(c, slot(), t);
    SSL_CTX_set_tlsext_ticket_key_evp_cb(c, on_ticket);
}
