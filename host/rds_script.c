/* Scripts of Redis: one a file, known to Redis by the SHA-1 of its text. */
#include "rds.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "mem.h"

enum { SCRIPT_MAX = 1 << 20 }; /* bytes */

static int read_file(const char *path, struct slice *out)
{
    struct stat st;
    char *text = NULL;
    size_t n = 0;
    int err = 0, fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || st.st_size > SCRIPT_MAX) {
        err = UV_EINVAL;
        goto done;
    }
    text = mem_alloc((size_t)st.st_size + 1);
    while (n < (size_t)st.st_size) {
        ssize_t got = read(fd, text + n, (size_t)st.st_size - n);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            break;
        n += (size_t)got;
    }
    err = n == (size_t)st.st_size && n > 0 ? 0 : UV_EIO;
done:
    close(fd);
    if (err != 0)
        mem_free(text);
    else
        *out = (struct slice){ text, n };
    return err;
}

static int digest(struct rds_script *s)
{
    unsigned char sum[EVP_MAX_MD_SIZE];
    unsigned n = 0;
    if (EVP_Digest(s->body.p, s->body.n, sum, &n, EVP_sha1(), NULL) != 1 || n != 20)
        return UV_ENOTSUP;
    for (unsigned i = 0; i < n; i++)
        snprintf(s->sha1 + 2 * i, 3, "%02x", sum[i]);
    return 0;
}

static int set_name(struct rds_script *s, const char *name)
{
    memset(s, 0, sizeof *s);
    if (name[0] == '\0' || strchr(name, '/') != NULL || strlen(name) >= sizeof s->name)
        return UV_EINVAL;
    snprintf(s->name, sizeof s->name, "%s", name);
    return 0;
}

int rds_script_load(struct rds_script *s, const char *dir, const char *name)
{
    char path[4096];
    int err = set_name(s, name);
    if (err == 0 && (size_t)snprintf(path, sizeof path, "%s/%s.lua", dir, name) >= sizeof path)
        err = UV_EINVAL;
    if (err == 0)
        err = read_file(path, &s->body);
    return err != 0 ? err : digest(s);
}

int rds_script_set(struct rds_script *s, const char *name, struct slice text)
{
    int err = set_name(s, name);
    if (err != 0)
        return err;
    if (text.n == 0 || text.n > SCRIPT_MAX)
        return UV_EINVAL;
    s->body = (struct slice){ mem_strndup(text.p, text.n), text.n };
    return digest(s);
}

void rds_script_deinit(struct rds_script *s)
{
    mem_free((char *)(uintptr_t)s->body.p);
    memset(s, 0, sizeof *s);
}
