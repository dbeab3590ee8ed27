/* See master.h: the sockets. For each address one with SO_REUSEPORT a place, so that the kernel
 * spreads connections; all are opened here and stay open as long as the master lives, since closing
 * one would reset what is queued on it. SO_REUSEPORT would let a second gateway share the port
 * without a word, so the address is bound without it first. A Unix socket is one for all places. */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "local.h"
#include "log.h"
#include "master.h"
#include "mem.h"
#include "stream.h"

enum { BACKLOG = 1024, LINE_SIZE = 192 };

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

static int open_address(const char *line, int *fds, unsigned n)
{
    char host[64];
    int port;
    if (sscanf(line, "%63s %d", host, &port) != 2)
        return UV_EINVAL;
    bool v6 = strchr(host, ':') != NULL;
    int got = open_all(host, port, fds, n);
    if (got < 0) {
        log_error("cannot listen on %s%s%s:%d: %s", v6 ? "[" : "", host, v6 ? "]" : "", port,
                  uv_strerror(got));
        return got;
    }
    log_info("listening on %s%s%s:%d", v6 ? "[" : "", host, v6 ? "]" : "", got);
    return 0;
}

static int open_unix(const struct identity *user, const char *path, unsigned mode, int *fds,
                     unsigned n)
{
    int err = 0;
    fds[0] = local_listen(path, mode, BACKLOG);
    if (fds[0] >= 0 && user->uid != 0 && lchown(path, user->uid, user->gid) != 0)
        log_warn("unix:%s: cannot be given to the user: %s", path, strerror(errno));
    for (unsigned i = 1; i < n && fds[0] >= 0 && err == 0; i++) {
        fds[i] = fcntl(fds[0], F_DUPFD_CLOEXEC, 0);
        err = fds[i] < 0 ? -errno : 0;
    }
    err = fds[0] < 0 ? fds[0] : err;
    if (err != 0)
        log_error("cannot listen on unix:%s: %s", path, uv_strerror(err));
    else
        log_info("listening on unix:%s", path);
    return err;
}

/* The next of the plan's addresses, one a line: "HOST PORT" or "unix MODE PATH". Its path, or "";
 * false at the end. */
static bool next_line(const char **at, char line[LINE_SIZE], const char **path, unsigned *mode)
{
    const char *end = strchr(*at, '\n');
    int used = 0;
    if (end == NULL)
        return false;
    snprintf(line, LINE_SIZE, "%.*s", (int)(end - *at), *at);
    *at = end + 1;
    *path = "";
    if (sscanf(line, "unix %o %n", mode, &used) == 1 && used > 0)
        *path = line + used;
    return true;
}

int master_sockets_open(struct master *m)
{
    const char *text = plan_text(m->plan, "listen"), *path;
    char line[LINE_SIZE];
    unsigned mode;
    for (const char *at = text; *at != '\0'; at++)
        m->naddresses += *at == '\n';
    m->sockets = mem_alloc((m->naddresses * m->places + 1) * sizeof *m->sockets);
    for (unsigned i = 0; i < m->naddresses * m->places; i++)
        m->sockets[i] = -1;
    for (unsigned i = 0; next_line(&text, line, &path, &mode); i++) {
        int *fds = m->sockets + i * m->places;
        if ((path[0] != '\0' ? open_unix(&m->user, path, mode, fds, m->places)
                             : open_address(line, fds, m->places)) != 0)
            return -1;
    }
    return 0;
}

void master_sockets_shut(struct master *m)
{
    const char *text = m->plan != NULL ? plan_text(m->plan, "listen") : "", *path;
    char line[LINE_SIZE];
    unsigned mode;
    for (unsigned i = 0; i < m->naddresses * m->places; i++)
        shutdown(m->sockets[i], SHUT_RDWR); /* for the workers too */
    for (unsigned i = 0; next_line(&text, line, &path, &mode); i++) {
        if (path[0] != '\0' && i < m->naddresses && m->sockets[i * m->places] >= 0)
            local_unlink(path);
    }
}
