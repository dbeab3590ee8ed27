/* See control_client.h. */
#include "control_client.h"

#include <errno.h>
#include <limits.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "generation.h"

bool control_link(const char *config, char *out, size_t size)
{
    char path[PATH_MAX], hex[33];
    unsigned char digest[32];
    const char *dir = getenv("XDG_RUNTIME_DIR");
    if (realpath(config, path) == NULL)
        return false;
    EVP_Digest(path, strlen(path), digest, NULL, EVP_sha256(), NULL);
    for (int i = 0; i < 16; i++)
        snprintf(hex + 2 * i, 3, "%02x", digest[i]);
    snprintf(out, size, "%s/tollgate-%u-%s", dir != NULL && dir[0] == '/' ? dir : "/tmp",
             (unsigned)geteuid(), hex);
    return true;
}

/* The socket that the link names; only one that is ours (or root's) is believed. */
static bool by_link(const char *config, char *out, size_t size)
{
    char link[PATH_MAX];
    struct stat st;
    if (!control_link(config, link, sizeof link) || lstat(link, &st) != 0 ||
        (st.st_uid != geteuid() && st.st_uid != 0))
        return false;
    ssize_t n = readlink(link, out, size - 1);
    if (n <= 0)
        return false;
    out[n] = '\0';
    return true;
}

static bool by_config(const char *config, char *out, size_t size, struct buf *faults)
{
    struct loop loop;
    struct services sv = { .loop = &loop };
    if (loop_init(&loop) != 0)
        return false;
    struct generation *g = generation_load(&sv, config, true, faults);
    if (g != NULL) {
        snprintf(out, size, "%s/admin.sock", g->settings.run_dir);
        g->stopped = true;
        generation_release(g);
    }
    loop_deinit(&loop);
    return g != NULL;
}

/* flags: SOCK_NONBLOCK, where a gateway that is stuck must not hold the caller; or 0. */
static int dial(const char *path, int flags)
{
    struct sockaddr_un to = { .sun_family = AF_UNIX };
    if (strlen(path) >= sizeof to.sun_path)
        return -1;
    strcpy(to.sun_path, path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | flags, 0);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&to, sizeof to) != 0) {
        close(fd);
        fd = -1;
    }
    return fd;
}

/* A peer that has gone is told by the return value: a signal would end us without a word. */
static bool send_all(int fd, struct slice text)
{
    while (text.n > 0) {
        ssize_t n = send(fd, text.p, text.n, MSG_NOSIGNAL);
        if (n < 0 && errno != EINTR)
            return false;
        if (n > 0)
            text = (struct slice){ text.p + n, text.n - (size_t)n };
    }
    return true;
}

int control_verdict(struct buf *answer)
{
    const char *end = answer->n > 0 ? memchr(answer->p, '\n', answer->n) : NULL;
    if (end == NULL) {
        buf_clear(answer);
        buf_add_text(answer, "the gateway ended while it was asked\n");
        return 1;
    }
    bool ok = slice_starts(buf_slice(answer), SLICE("ok\n"));
    buf_consume(answer, (size_t)(end + 1 - answer->p));
    return ok ? 0 : 1;
}

static int talk(int fd, const char *line, struct buf *answer)
{
    ssize_t n = 0;
    if (send_all(fd, slice_of(line)) && send_all(fd, SLICE("\n")))
        while ((n = read(fd, buf_reserve(answer, 4096), 4096)) > 0 || (n < 0 && errno == EINTR))
            answer->n += n > 0 ? (size_t)n : 0;
    return control_verdict(answer);
}

/* Where somebody answered last: of a gateway that runs as another user there is no link of ours. */
static char found[PATH_MAX];

int control_try(const char *config, const char *line, struct buf *answer)
{
    char path[PATH_MAX] = "";
    int fd = found[0] != '\0'                     ? dial(found, 0)
             : by_link(config, path, sizeof path) ? dial(path, 0)
                                                  : -1;
    int code = fd >= 0 ? talk(fd, line, answer) : -1;
    if (fd >= 0)
        close(fd);
    return code;
}

int control_begin(const char *config, const char *line)
{
    char path[PATH_MAX] = "";
    int fd = found[0] != '\0' ? dial(found, SOCK_NONBLOCK) : -1;
    if (fd < 0 && by_link(config, path, sizeof path))
        fd = dial(path, SOCK_NONBLOCK);
    if (fd >= 0 && !(send_all(fd, slice_of(line)) && send_all(fd, SLICE("\n")))) {
        close(fd);
        fd = -1;
    }
    return fd;
}

int control_ask(const char *config, const char *line, struct buf *answer)
{
    char path[PATH_MAX] = "";
    int fd = by_link(config, path, sizeof path) ? dial(path, 0) : -1;
    if (fd < 0 && !by_config(config, path, sizeof path, answer))
        return 1;
    if (fd < 0)
        fd = dial(path, 0);
    if (fd < 0) {
        buf_printf(answer, "no gateway runs with %s (nobody answers on %s)\n", config, path);
        return 1;
    }
    snprintf(found, sizeof found, "%s", path);
    int code = talk(fd, line, answer);
    close(fd);
    return code;
}
