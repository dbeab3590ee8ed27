/* See snapshot.h. Entries are few (a file each), so a list is enough. */
#include "snapshot.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <uv.h>

#include "mem.h"

enum kind { FILE_BYTES = 'f', ENV = 'e', NOTE = 'n', STAMP = 's' };

struct entry {
    struct entry *next;
    enum kind kind;
    int err;            /* of reading; bytes are empty then. ENV: UV_ENOENT where it is not set */
    struct slice bytes; /* a NUL is behind them */
    bool owned;         /* else in the map */
    char name[];
};

struct snapshot {
    struct entry *first, **last;
    bool recording;
    void *map; /* read ones: entries' bytes are in here */
    size_t mapped;
};

struct snapshot *snapshot_new(void)
{
    struct snapshot *s = mem_zalloc(sizeof *s);
    s->last = &s->first;
    s->recording = true;
    return s;
}

bool snapshot_recording(const struct snapshot *s)
{
    return s->recording;
}

void snapshot_free(struct snapshot *s)
{
    if (s == NULL)
        return;
    while (s->first != NULL) {
        struct entry *e = s->first;
        s->first = e->next;
        if (e->owned) {
            OPENSSL_cleanse((void *)(uintptr_t)e->bytes.p, e->bytes.n); /* it may be a key */
            mem_free((void *)(uintptr_t)e->bytes.p);
        }
        mem_free(e);
    }
    if (s->map != NULL)
        munmap(s->map, s->mapped);
    mem_free(s);
}

static struct entry *find(const struct snapshot *s, enum kind kind, const char *name)
{
    struct entry *e = s->first;
    while (e != NULL && (e->kind != kind || strcmp(e->name, name) != 0))
        e = e->next;
    return e;
}

/* Takes the bytes. */
static struct entry *add(struct snapshot *s, enum kind kind, const char *name, int err,
                         struct slice bytes)
{
    struct entry *e = mem_zalloc(sizeof *e + strlen(name) + 1);
    memcpy(e->name, name, strlen(name) + 1);
    e->kind = kind;
    e->err = err;
    e->bytes = bytes;
    e->owned = true;
    *s->last = e;
    s->last = &e->next;
    return e;
}

/* All bytes of a descriptor into an owned slice. */
static int read_all(int fd, struct slice *out)
{
    struct buf b;
    ssize_t n;
    buf_init(&b);
    while ((n = read(fd, buf_reserve(&b, 65536), 65536)) > 0)
        b.n += (size_t)n;
    if (n < 0) {
        int err = -errno;
        buf_deinit(&b);
        return err;
    }
    buf_add(&b, "", 1); /* a NUL behind, for those who want text */
    *out = (struct slice){ b.p, b.n - 1 };
    return 0;
}

static int read_disk(const char *path, struct slice *out)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    int err = fstat(fd, &st) != 0   ? -errno
              : S_ISREG(st.st_mode) ? 0
              : S_ISDIR(st.st_mode) ? UV_EISDIR
                                    : UV_EINVAL;
    if (err == 0)
        err = read_all(fd, out);
    close(fd);
    return err;
}

void snapshot_stamp(const char *path, char out[SNAPSHOT_STAMP])
{
    struct stat st;
    out[0] = '\0';
    if (stat(path, &st) == 0)
        snprintf(out, SNAPSHOT_STAMP, "%jx %jx %jd %jd.%09ld %jd.%09ld", (uintmax_t)st.st_dev,
                 (uintmax_t)st.st_ino, (intmax_t)st.st_size, (intmax_t)st.st_mtim.tv_sec,
                 st.st_mtim.tv_nsec, (intmax_t)st.st_ctim.tv_sec, st.st_ctim.tv_nsec);
}

struct slice snapshot_stamp_read(struct snapshot *s, const char *path)
{
    const struct entry *e = find(s, STAMP, path);
    return e != NULL ? e->bytes : (struct slice){ NULL, 0 };
}

int snapshot_file(struct snapshot *s, const char *path, struct slice *out)
{
    struct entry *e = find(s, FILE_BYTES, path);
    if (e == NULL) {
        char stamp[SNAPSHOT_STAMP];
        struct slice bytes = { NULL, 0 };
        snapshot_stamp(path, stamp); /* before: what is written while we read is a change */
        add(s, STAMP, path, 0, (struct slice){ mem_strdup(stamp), strlen(stamp) });
        int err = read_disk(path, &bytes);
        e = add(s, FILE_BYTES, path, err, bytes);
    }
    *out = e->bytes;
    return e->err;
}

void snapshot_put_file(struct snapshot *s, const char *path, struct slice bytes)
{
    if (find(s, FILE_BYTES, path) == NULL)
        add(s, FILE_BYTES, path, 0, (struct slice){ mem_strndup(bytes.p, bytes.n), bytes.n });
}

struct slice snapshot_env(struct snapshot *s, const char *name)
{
    struct entry *e = find(s, ENV, name);
    if (e == NULL && s->recording) {
        const char *v = getenv(name);
        struct slice bytes = { v != NULL ? mem_strdup(v) : NULL, v != NULL ? strlen(v) : 0 };
        e = add(s, ENV, name, v != NULL ? 0 : UV_ENOENT, bytes);
    }
    return e != NULL && e->err == 0 ? e->bytes : (struct slice){ NULL, 0 };
}

void snapshot_set_note(struct snapshot *s, const char *name, struct slice value)
{
    add(s, NOTE, name, 0, (struct slice){ mem_strndup(value.p, value.n), value.n });
}

struct slice snapshot_note(struct snapshot *s, const char *name)
{
    struct entry *e = find(s, NOTE, name);
    return e != NULL ? e->bytes : (struct slice){ NULL, 0 };
}

/* --- to and from a descriptor: "kind err name-length bytes-length\n" name bytes, again and again
 * --- */

static void put(struct buf *out, const struct entry *e)
{
    buf_printf(out, "%c %d %zu %zu\n", (int)e->kind, e->err, strlen(e->name), e->bytes.n);
    buf_add_text(out, e->name);
    buf_add_slice(out, e->bytes);
    buf_add(out, "", 1);
}

/* What is in it may be a key. */
static void forget(struct buf *b)
{
    OPENSSL_cleanse(b->p, b->cap);
    buf_deinit(b);
}

int snapshot_write(struct snapshot *s, int fd)
{
    struct buf out;
    buf_init(&out);
    for (const struct entry *e = s->first; e != NULL; e = e->next)
        put(&out, e);
    size_t at = 0;
    int err = 0;
    while (at < out.n && err == 0) {
        ssize_t n = write(fd, out.p + at, out.n - at);
        if (n < 0 && errno != EINTR)
            err = -errno;
        else if (n > 0)
            at += (size_t)n;
    }
    forget(&out);
    return err;
}

/* A number and the one character behind it. False where there is none. */
static bool take_number(struct slice text, size_t *at, long *out)
{
    bool negative = *at < text.n && text.p[*at] == '-', any = false;
    size_t i = *at + negative;
    for (*out = 0; i < text.n && text.p[i] >= '0' && text.p[i] <= '9'; i++, any = true)
        *out = *out * 10 + (text.p[i] - '0');
    *out = negative ? -*out : *out;
    *at = i + 1;
    return any && *at <= text.n;
}

/* One entry; its bytes stay where they are. False at the end, or where the text is damaged. */
static bool take(struct snapshot *s, struct slice text, size_t *at)
{
    long err, nname, nbytes;
    size_t p = *at + 2;
    if (p >= text.n || !take_number(text, &p, &err) || !take_number(text, &p, &nname) ||
        !take_number(text, &p, &nbytes) || nname < 0 || nbytes < 0 ||
        p + (size_t)nname + (size_t)nbytes + 1 > text.n)
        return false;
    char *name = mem_strndup(text.p + p, (size_t)nname);
    struct slice bytes = { text.p + p + nname, (size_t)nbytes };
    struct entry *e = add(s, (enum kind)text.p[*at], name, (int)err, bytes);
    e->owned = false;
    mem_free(name);
    *at = p + (size_t)nname + (size_t)nbytes + 1;
    return true;
}

struct snapshot *snapshot_read_fd(int fd)
{
    off_t size = lseek(fd, 0, SEEK_END);
    void *map = size > 0 ? mmap(NULL, (size_t)size, PROT_READ, MAP_PRIVATE, fd, 0) : MAP_FAILED;
    if (map == MAP_FAILED)
        return NULL;
    struct slice text = { map, (size_t)size };
    size_t at = 0;
    struct snapshot *s = snapshot_new();
    s->recording = false;
    s->map = map;
    s->mapped = (size_t)size;
    while (take(s, text, &at))
        ;
    if (at == text.n)
        return s;
    snapshot_free(s);
    return NULL;
}

void snapshot_hash(struct snapshot *s, char out[SNAPSHOT_HEX])
{
    unsigned char digest[32];
    struct buf all;
    buf_init(&all);
    for (const struct entry *e = s->first; e != NULL; e = e->next) {
        if (e->kind != NOTE && e->kind != STAMP)
            put(&all, e);
    }
    EVP_Digest(all.p, all.n, digest, NULL, EVP_sha256(), NULL);
    for (int i = 0; i < 32; i++)
        snprintf(out + 2 * i, 3, "%02x", digest[i]);
    forget(&all);
}

void snapshot_each_file(struct snapshot *s,
                        void (*cb)(void *arg, const char *path, struct slice bytes), void *arg)
{
    for (const struct entry *e = s->first; e != NULL; e = e->next) {
        if (e->kind == FILE_BYTES && e->err == 0)
            cb(arg, e->name, e->bytes);
    }
}

void snapshot_each_path(struct snapshot *s, void (*cb)(void *arg, const char *path), void *arg)
{
    for (const struct entry *e = s->first; e != NULL; e = e->next) {
        if (e->kind == FILE_BYTES)
            cb(arg, e->name);
    }
}
