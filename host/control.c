/* See control.h. */
#include "control.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "container.h"
#include "mem.h"

struct control {
    uv_poll_t poll;
    struct loop *loop;
    int fd;
    const struct control_events *events;
    void *arg;
    struct deferred end;
    bool ended, freed;
};

int control_pair(int fd[2])
{
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, fd) != 0)
        return -errno;
    fcntl(fd[0], F_SETFD, FD_CLOEXEC);
    return 0;
}

static void on_end(struct deferred *d)
{
    struct control *c = CONTAINER(d, struct control, end);
    c->events->on_end(c->arg);
}

static void end(struct control *c)
{
    if (c->ended)
        return;
    c->ended = true;
    uv_poll_stop(&c->poll);
    loop_defer(c->loop, &c->end, LOOP_FINISH);
}

static int passed_fd(struct msghdr *m)
{
    int fd = -1;
    for (struct cmsghdr *h = CMSG_FIRSTHDR(m); h != NULL; h = CMSG_NXTHDR(m, h)) {
        if (h->cmsg_level == SOL_SOCKET && h->cmsg_type == SCM_RIGHTS)
            memcpy(&fd, CMSG_DATA(h), sizeof fd);
    }
    return fd;
}

/* One message. False where there is none now. */
static bool receive(struct control *c)
{
    static char text[CONTROL_MAX];
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int))];
    } rights;
    struct iovec iov = { text, sizeof text };
    struct msghdr m = {
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = &rights, .msg_controllen = sizeof rights
    };
    ssize_t n = recvmsg(c->fd, &m, MSG_CMSG_CLOEXEC);
    if (n > 0) {
        c->events->on_message(c->arg, (struct slice){ text, (size_t)n }, passed_fd(&m));
        return true;
    }
    if (n == 0 || (errno != EAGAIN && errno != EINTR))
        end(c);
    return false;
}

static void on_readable(uv_poll_t *h, int status, int events)
{
    struct control *c = h->data;
    (void)status, (void)events;
    while (!c->freed && !c->ended && receive(c))
        ;
}

struct control *control_new(struct loop *l, int fd, const struct control_events *events, void *arg)
{
    struct control *c = mem_zalloc(sizeof *c);
    c->loop = l;
    c->fd = fd;
    c->events = events;
    c->arg = arg;
    c->end.run = on_end;
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    fcntl(fd, F_SETFL, O_NONBLOCK);
    uv_poll_init(&l->uv, &c->poll, fd);
    c->poll.data = c;
    uv_poll_start(&c->poll, UV_READABLE, on_readable);
    return c;
}

void control_send(struct control *c, int fd, const char *format, ...)
{
    char text[CONTROL_MAX];
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int))];
    } rights;
    struct iovec iov = { text, 0 };
    struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1 };
    va_list ap;
    if (c->ended)
        return;
    va_start(ap, format);
    int n = vsnprintf(text, sizeof text, format, ap);
    va_end(ap);
    iov.iov_len = n < (int)sizeof text ? (size_t)n : sizeof text - 1;
    if (fd >= 0) {
        m.msg_control = &rights;
        m.msg_controllen = sizeof rights;
        struct cmsghdr *h = CMSG_FIRSTHDR(&m);
        h->cmsg_level = SOL_SOCKET;
        h->cmsg_type = SCM_RIGHTS;
        h->cmsg_len = CMSG_LEN(sizeof fd);
        memcpy(CMSG_DATA(h), &fd, sizeof fd);
    }
    if (sendmsg(c->fd, &m, MSG_NOSIGNAL) < 0)
        end(c);
}

static void on_closed(uv_handle_t *h)
{
    mem_free(h->data);
}

void control_free(struct control *c)
{
    c->freed = true;
    c->ended = true;
    loop_undefer(c->loop, &c->end);
    uv_close((uv_handle_t *)&c->poll, on_closed);
    close(c->fd);
}

int control_fd(const struct control *c)
{
    return c->fd;
}
