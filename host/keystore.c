/* See keystore.h. Two open-addressing tables of record numbers, at most half full: by digest and
 * by id. A digest's own first bytes are its hash. Whoever offers secrets cannot choose digests,
 * so neither the slots that are looked at nor the comparison (constant in time all the same)
 * leads towards a secret. */
#include "keystore.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/sha.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "json.h"
#include "mem.h"

struct keystore {
    struct arena arena; /* the records' text */
    struct key_record *v;
    size_t n;
    uint32_t *by_digest, *by_id; /* record number + 1; 0 is free */
    size_t mask;                 /* slots in either - 1 */
};

/* --- tables --- */

static size_t digest_hash(const unsigned char *digest)
{
    size_t h;
    memcpy(&h, digest, sizeof h);
    return h;
}

static size_t id_hash(struct slice id)
{
    uint64_t h = 0xcbf29ce484222325u; /* FNV-1a: ids are the operator's, not an attacker's */
    for (size_t i = 0; i < id.n; i++)
        h = (h ^ (unsigned char)id.p[i]) * 0x100000001b3u;
    return (size_t)(h ^ h >> 32);
}

/* The slot of the record with that digest or id, or the free one where it would be. */
static uint32_t *digest_slot(const struct keystore *ks, const unsigned char *digest)
{
    size_t at = digest_hash(digest) & ks->mask;
    while (ks->by_digest[at] != 0 &&
           CRYPTO_memcmp(ks->v[ks->by_digest[at] - 1].digest, digest, KEY_DIGEST) != 0)
        at = (at + 1) & ks->mask;
    return &ks->by_digest[at];
}

static uint32_t *id_slot(const struct keystore *ks, struct slice id)
{
    size_t at = id_hash(id) & ks->mask;
    while (ks->by_id[at] != 0 && !slice_eq(ks->v[ks->by_id[at] - 1].id, id))
        at = (at + 1) & ks->mask;
    return &ks->by_id[at];
}

/* --- loading --- */

/* 0 or -errno. */
static int read_file(const char *path, struct buf *out)
{
    enum { PIECE = 65536 };
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    struct stat st;
    if (fstat(fd, &st) == 0 && st.st_size > 0)
        buf_reserve(out, (size_t)st.st_size + PIECE);
    ssize_t n;
    do {
        n = read(fd, buf_reserve(out, PIECE), PIECE);
        if (n > 0)
            out->n += (size_t)n;
    } while (n > 0 || (n < 0 && errno == EINTR));
    int rc = n < 0 ? -errno : 0;
    close(fd);
    return rc;
}

/* Takes the next line, without its end, from the front of `rest`. */
static struct slice next_line(struct slice *rest)
{
    const char *end = memchr(rest->p, '\n', rest->n);
    struct slice line = { rest->p, end == NULL ? rest->n : (size_t)(end - rest->p) };
    size_t used = line.n + (end != NULL);
    rest->p += used;
    rest->n -= used;
    return line;
}

static bool blank(struct slice line)
{
    size_t i = 0;
    while (i < line.n && (line.p[i] == ' ' || line.p[i] == '\t' || line.p[i] == '\r'))
        i++;
    return i == line.n;
}

/* Room for as many records as there are lines. */
static void allocate(struct keystore *ks, struct slice text)
{
    size_t lines = 0, slots = 8;
    while (text.n > 0)
        lines += !blank(next_line(&text));
    while (slots < 2 * lines)
        slots *= 2;
    ks->v = mem_alloc(lines * sizeof *ks->v);
    ks->by_digest = mem_zalloc(slots * sizeof *ks->by_digest);
    ks->by_id = mem_zalloc(slots * sizeof *ks->by_id);
    ks->mask = slots - 1;
}

/* Enters the record behind the last one, if none has its id or secret. */
static int enter(struct keystore *ks, struct buf *fault)
{
    struct key_record *r = &ks->v[ks->n];
    uint32_t *id = id_slot(ks, r->id), *digest = digest_slot(ks, r->digest);
    if (*id != 0) {
        buf_add_text(fault, "id ");
        json_quote(fault, r->id);
        buf_printf(fault, " is already that of line %u", ks->v[*id - 1].line);
        return -1;
    }
    if (*digest != 0) {
        buf_printf(fault, "secret_sha256 is already that of line %u", ks->v[*digest - 1].line);
        return -1;
    }
    *id = *digest = (uint32_t)++ks->n;
    return 0;
}

static int load(struct keystore *ks, struct slice text, const char *path, struct buf *fault)
{
    allocate(ks, text);
    for (uint32_t number = 1; text.n > 0; number++) {
        struct slice line = next_line(&text);
        if (blank(line))
            continue;
        size_t before = fault->n;
        buf_printf(fault, "%s:%u: ", path, number);
        struct key_record *r = &ks->v[ks->n];
        if (key_record_parse(r, &ks->arena, line, fault) != 0)
            return -1;
        r->line = number;
        if (enter(ks, fault) != 0)
            return -1;
        fault->n = before;
    }
    return 0;
}

struct keystore *keystore_parse(struct slice text, const char *path, struct buf *fault)
{
    struct keystore *ks = mem_zalloc(sizeof *ks);
    arena_init(&ks->arena);
    if (load(ks, text, path, fault) == 0)
        return ks;
    keystore_free(ks);
    return NULL;
}

struct keystore *keystore_open(const char *path, struct buf *fault)
{
    struct buf text;
    buf_init(&text);
    struct keystore *ks = NULL;
    int rc = read_file(path, &text);
    if (rc != 0)
        buf_printf(fault, "%s: cannot be read: %s", path, strerror(-rc));
    else
        ks = keystore_parse(buf_slice(&text), path, fault);
    buf_deinit(&text);
    return ks;
}

void keystore_free(struct keystore *ks)
{
    if (ks == NULL)
        return;
    arena_deinit(&ks->arena);
    mem_free(ks->v);
    mem_free(ks->by_digest);
    mem_free(ks->by_id);
    mem_free(ks);
}

/* --- use --- */

static const struct key_record *record(const struct keystore *ks, uint32_t slot)
{
    return slot == 0 ? NULL : &ks->v[slot - 1];
}

const struct key_record *keystore_find(const struct keystore *ks, struct slice secret)
{
    unsigned char digest[KEY_DIGEST];
    SHA256((const unsigned char *)(secret.n == 0 ? "" : secret.p), secret.n, digest);
    return record(ks, *digest_slot(ks, digest));
}

const struct key_record *keystore_find_id(const struct keystore *ks, struct slice id)
{
    return record(ks, *id_slot(ks, id));
}

size_t keystore_count(const struct keystore *ks)
{
    return ks->n;
}

const struct key_record *keystore_at(const struct keystore *ks, size_t i)
{
    return &ks->v[i];
}

size_t keystore_index(const struct keystore *ks, const struct key_record *r)
{
    return (size_t)(r - ks->v);
}

void keystore_digest_hex(struct slice secret, char out[KEY_HEX_SIZE])
{
    static const char digits[] = "0123456789abcdef";
    unsigned char digest[KEY_DIGEST];
    SHA256((const unsigned char *)(secret.n == 0 ? "" : secret.p), secret.n, digest);
    for (int i = 0; i < KEY_DIGEST; i++) {
        out[2 * i] = digits[digest[i] >> 4];
        out[2 * i + 1] = digits[digest[i] & 15];
    }
    out[KEY_HEX_SIZE - 1] = '\0';
}

int keystore_secret_new(char out[KEY_SECRET_SIZE])
{
    unsigned char bits[32];
    char text[45]; /* 44 characters, the last is padding */
    ssize_t n;
    do
        n = getrandom(bits, sizeof bits, 0); /* up to 256 bytes come whole */
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return -errno;
    EVP_EncodeBlock((unsigned char *)text, bits, sizeof bits);
    memcpy(out, "tg-", 3);
    for (int i = 0; i < KEY_SECRET_SIZE - 4; i++)
        out[3 + i] = text[i] == '+' ? '-' : text[i] == '/' ? '_' : text[i];
    out[KEY_SECRET_SIZE - 1] = '\0';
    OPENSSL_cleanse(bits, sizeof bits);
    OPENSSL_cleanse(text, sizeof text);
    return 0;
}
