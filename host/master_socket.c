/* See master.h: the sockets. For each address one with SO_REUSEPORT a place, so that the kernel
 * spreads connections; all are opened here and stay open as long as the master lives, since closing
 * one would reset what is queued on it. SO_REUSEPORT would let a second gateway share the port
 * without a word, so the address is bound without it first. */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "log.h"
#include "master.h"
#include "mem.h"
#include "stream.h"

enum { BACKLOG = 1024 };

static int bound(const struct address *a, bool share)
{
    int on = 1, fd = socket(a->u.sa.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    socklen_t size = a->u.sa.sa_family == AF_INET6 ? sizeof a->u.in6 : sizeof a->u.in;
    if (fd < 0)
        return -errno;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (share)
        setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof on);
    if (a->u.sa.sa_family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
    if (bind(fd, &a->u.sa, size) == 0 && (!share || listen(fd, BACKLOG) == 0))
        return fd;
    int err = -errno;
    close(fd);
    return err;
}

static int port_of(int fd)
{
    struct sockaddr_storage ss;
    socklen_t size = sizeof ss;
    getsockname(fd, (struct sockaddr *)&ss, &size);
    return ntohs(ss.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&ss)->sin6_port
                                          : ((struct sockaddr_in *)&ss)->sin_port);
}

/* The port, or a negative errno. */
static int open_all(const char *host, int port, int *fds, unsigned n)
{
    struct address a;
    int err = address_of_ip(host, port, &a);
    if (err != 0)
        return err;
    int probe = bound(&a, false);
    if (probe < 0)
        return probe;
    if (port == 0) {
        port = port_of(probe);
        address_of_ip(host, port, &a);
    }
    close(probe);
    for (unsigned i = 0; i < n; i++) {
        fds[i] = bound(&a, true);
        if (fds[i] < 0)
            return fds[i];
    }
    return port;
}

int master_sockets_open(struct master *m)
{
    const char *text = plan_text(m->plan, "listen"), *at = text;
    char host[64];
    int port, used;
    for (; *at != '\0'; at++)
        m->naddresses += *at == '\n';
    m->sockets = mem_zalloc((m->naddresses * m->places + 1) * sizeof *m->sockets);
    at = text;
    for (unsigned i = 0; i < m->naddresses && sscanf(at, "%63s %d\n%n", host, &port, &used) == 2;
         i++, at += used) {
        bool v6 = strchr(host, ':') != NULL;
        int got = open_all(host, port, m->sockets + i * m->places, m->places);
        if (got < 0) {
            log_error("cannot listen on %s%s%s:%d: %s", v6 ? "[" : "", host, v6 ? "]" : "", port,
                      uv_strerror(got));
            return -1;
        }
        log_info("listening on %s%s%s:%d", v6 ? "[" : "", host, v6 ? "]" : "", got);
    }
    return 0;
}
