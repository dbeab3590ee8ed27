/* See local.h. */
#include "local.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
#include <uv.h>

static int address_of_path(const char *path, struct sockaddr_un *out)
{
    memset(out, 0, sizeof *out);
    out->sun_family = AF_UNIX;
    if (path[0] == '\0' || strlen(path) >= sizeof out->sun_path)
        return UV_ENAMETOOLONG;
    memcpy(out->sun_path, path, strlen(path) + 1);
    return 0;
}

static int new_socket(void)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    return fd < 0 ? -errno : fd;
}

/* 0: nobody listens there. UV_EADDRINUSE, UV_EEXIST, or what keeps us from knowing. */
static int look(const struct sockaddr_un *a)
{
    struct stat st;
    if (lstat(a->sun_path, &st) != 0)
        return errno == ENOENT ? 0 : -errno;
    if (!S_ISSOCK(st.st_mode))
        return UV_EEXIST;
    int fd = new_socket();
    if (fd < 0)
        return fd;
    int err = connect(fd, (const struct sockaddr *)a, sizeof *a) == 0 ? UV_EADDRINUSE : -errno;
    close(fd);
    if (err == UV_EAGAIN) /* its queue is full: somebody is there */
        return UV_EADDRINUSE;
    return err == UV_ECONNREFUSED || err == UV_ENOENT ? 0 : err;
}

/* The mask makes the mode right before anybody can connect. */
static int bind_as(int fd, const struct sockaddr_un *a, unsigned mode)
{
    mode_t before = umask(0777 & ~mode);
    int err = bind(fd, (const struct sockaddr *)a, sizeof *a) == 0 ? 0 : -errno;
    umask(before);
    return err;
}

int local_listen(const char *path, unsigned mode, int backlog)
{
    struct sockaddr_un a;
    int err = address_of_path(path, &a);
    if (err != 0)
        return err;
    int fd = new_socket();
    if (fd < 0)
        return fd;
    err = bind_as(fd, &a, mode);
    if (err == UV_EADDRINUSE && (err = look(&a)) == 0) {
        if (unlink(path) != 0 && errno != ENOENT)
            err = -errno;
        else
            err = bind_as(fd, &a, mode);
    }
    if (err == 0 && listen(fd, backlog) != 0)
        err = -errno;
    if (err == 0)
        return fd;
    close(fd);
    return err;
}

void local_unlink(const char *path)
{
    struct sockaddr_un a;
    if (address_of_path(path, &a) == 0 && look(&a) == 0)
        unlink(path);
}
