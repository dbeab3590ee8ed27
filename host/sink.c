/* See sink.h. */
#include "sink.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

void sink_init(struct sink *s, int fd)
{
    struct stat st;
    char path[32];
    *s = (struct sink){ fd, SINK_FILE };
    if (fstat(fd, &st) != 0 || S_ISREG(st.st_mode))
        return;
    if (S_ISSOCK(st.st_mode)) {
        s->kind = SINK_SOCKET;
        return;
    }
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    int own = open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
    s->kind = own >= 0 ? SINK_OWN : SINK_SHARED;
    s->fd = own >= 0 ? own : fd;
}

void sink_deinit(struct sink *s)
{
    if (s->kind == SINK_OWN)
        close(s->fd);
}

static ssize_t try(const struct sink *s, const char *p, size_t n)
{
    struct pollfd ready = { .fd = s->fd, .events = POLLOUT };
    if (s->kind == SINK_SOCKET)
        return send(s->fd, p, n, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (s->kind == SINK_SHARED) {
        if (poll(&ready, 1, 0) == 0)
            return 0;
        n = n < PIPE_BUF ? n : PIPE_BUF;
    }
    return write(s->fd, p, n);
}

ssize_t sink_write(const struct sink *s, const char *p, size_t n)
{
    size_t at = 0;
    while (at < n) {
        ssize_t k = try(s, p + at, n - at);
        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != ENOBUFS)
            return at > 0 ? (ssize_t)at : -errno;
        if (k <= 0)
            break;
        at += (size_t)k;
    }
    return (ssize_t)at;
}
