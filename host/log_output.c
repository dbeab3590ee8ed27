/* See log_output.h. */
#include "log_output.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "address.h"
#include "log.h"

enum { FILE_MODE = 0640, PRIORITY = 16 * 8 + 6 /* local0.info */, MESSAGE_MAX = 65000 };

/* --- what becomes of lines --- */

static uint64_t count_lines(const char *p, size_t n)
{
    uint64_t lines = 0;
    for (const char *end = p + n; p < end && (p = memchr(p, '\n', (size_t)(end - p))) != NULL; p++)
        lines++;
    return lines;
}

static void took(struct log_output *o, struct buf *lines, size_t n)
{
    if (n == 0)
        return;
    *o->written += count_lines(lines->p, n);
    o->inside = lines->p[n - 1] != '\n';
    buf_consume(lines, n);
    if (o->failing)
        log_info("access log: %s takes lines again; %" PRIu64 " were lost", o->name,
                 o->failed_since);
    o->failing = false;
}

/* Gives up n bytes of whole lines. */
static void lose(struct log_output *o, struct buf *lines, size_t n, int err)
{
    uint64_t lost = count_lines(lines->p, n);
    if (!o->failing) {
        o->failed_since = 0;
        log_error("access log: %s: %s; lines are lost", o->name, strerror(err));
    }
    o->failing = true;
    o->failed_since += lost;
    *o->failed += lost;
    buf_consume(lines, n);
}

/* --- to stdout and files --- */

static void open_file(struct log_output *o)
{
    o->fd =
        open(o->name, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, FILE_MODE);
}

/* The rest of a line that stands in the file in part must follow it, so it is kept. */
static void lose_bytes(struct log_output *o, struct buf *lines, int err)
{
    const char *end = o->inside ? memchr(lines->p, '\n', lines->n) : NULL;
    size_t rest = end != NULL ? (size_t)(end - lines->p) + 1 : 0;
    struct buf behind = { lines->p + rest, lines->n - rest, lines->n - rest };
    lose(o, &behind, behind.n, err);
    lines->n = rest;
}

static bool write_file(struct log_output *o, struct buf *lines)
{
    if (o->fd < 0)
        open_file(o);
    while (lines->n > 0) {
        ssize_t n = o->fd >= 0 ? write(o->fd, lines->p, lines->n) : -1;
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && o->fd >= 0 && errno == EAGAIN) /* a named pipe */
            return false;
        if (n < 0) {
            lose_bytes(o, lines, errno);
            return lines->n == 0;
        }
        took(o, lines, (size_t)n);
    }
    return true;
}

static bool write_stdout(struct log_output *o, struct buf *lines)
{
    ssize_t n = sink_write(&o->sink, lines->p, lines->n);
    if (n < 0) {
        o->inside = false; /* nobody will ever see the beginning */
        lose_bytes(o, lines, (int)-n);
    } else {
        took(o, lines, (size_t)n);
    }
    return lines->n == 0;
}

/* --- to syslog --- */

static void open_socket(struct log_output *o)
{
    int type = SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK;
    o->fd = socket(o->peer.sa.sa_family, type, 0);
    if (o->fd < 0 || connect(o->fd, &o->peer.sa, o->peer_size) == 0)
        return;
    int err = errno;
    close(o->fd);
    o->fd = -1;
    errno = err;
}

static void close_fd(struct log_output *o)
{
    if (o->fd >= 0)
        close(o->fd);
    o->fd = -1;
}

/* <PRI>1 time host tollgate pid access - line */
static int send_line(struct log_output *o, struct slice line)
{
    char head[384], stamp[32];
    struct timespec ts;
    struct tm tm;
    clock_gettime(CLOCK_REALTIME, &ts);
    gmtime_r(&ts.tv_sec, &tm);
    strftime(stamp, sizeof stamp, "%Y-%m-%dT%H:%M:%S", &tm);
    int n = snprintf(head, sizeof head, "<%d>1 %s.%06ldZ %s", PRIORITY, stamp, ts.tv_nsec / 1000,
                     o->head);
    size_t most = MESSAGE_MAX - (size_t)n;
    struct iovec v[2] = { { head, (size_t)n },
                          { (void *)(uintptr_t)line.p, line.n < most ? line.n : most } };
    struct msghdr m = { .msg_iov = v, .msg_iovlen = 2 };
    return sendmsg(o->fd, &m, MSG_NOSIGNAL) >= 0 ? 0 : errno;
}

static bool write_syslog(struct log_output *o, struct buf *lines)
{
    size_t at = 0;
    int err = 0;
    if (o->fd < 0)
        open_socket(o);
    if (o->fd < 0)
        err = errno;
    while (err == 0 && at < lines->n) {
        const char *line = lines->p + at, *end = memchr(line, '\n', lines->n - at);
        err = send_line(o, (struct slice){ line, (size_t)(end - line) });
        if (err == EINTR || err == ECONNREFUSED) /* the latter is of the datagram before */
            err = send_line(o, (struct slice){ line, (size_t)(end - line) });
        if (err == 0)
            at += (size_t)(end - line) + 1;
    }
    took(o, lines, at);
    if (err == EAGAIN || err == ENOBUFS)
        return false;
    if (err != 0) {
        close_fd(o); /* the daemon may come back with another socket */
        lose(o, lines, lines->n, err);
    }
    return true;
}

bool log_output_write(struct log_output *o, struct buf *lines)
{
    if (lines->n == 0)
        return true;
    switch (o->kind) {
    case OUTPUT_STDOUT: return write_stdout(o, lines);
    case OUTPUT_FILE: return write_file(o, lines);
    case OUTPUT_UNIX:
    case OUTPUT_UDP: return write_syslog(o, lines);
    default: return false; /* not told yet */
    }
}

/* --- where to --- */

void log_output_init(struct log_output *o, uint64_t *written, uint64_t *failed)
{
    *o = (struct log_output){ .fd = -1, .written = written, .failed = failed };
}

void log_output_deinit(struct log_output *o)
{
    if (o->kind == OUTPUT_STDOUT)
        sink_deinit(&o->sink);
    close_fd(o);
    o->kind = OUTPUT_NONE;
}

static void set_head(struct log_output *o)
{
    char host[256] = "-";
    if (gethostname(host, sizeof host - 1) != 0 || host[0] == '\0')
        strcpy(host, "-");
    snprintf(o->head, sizeof o->head, "%s tollgate %d access - ", host, (int)getppid());
}

static void set_unix(struct log_output *o, const char *path)
{
    struct sockaddr_un *un = (struct sockaddr_un *)&o->peer.space;
    o->kind = OUTPUT_UNIX;
    un->sun_family = AF_UNIX;
    snprintf(un->sun_path, sizeof un->sun_path, "%s", path);
    o->peer_size = sizeof *un;
}

static void set_udp(struct log_output *o, const char *host, int port)
{
    struct address a;
    if (address_of_ip(host, port, &a) != 0)
        return;
    o->kind = OUTPUT_UDP;
    o->peer_size = a.u.sa.sa_family == AF_INET6 ? sizeof a.u.in6 : sizeof a.u.in;
    memcpy(&o->peer.space, &a.u, o->peer_size);
}

void log_output_set(struct log_output *o, const char *to)
{
    char host[64];
    int port;
    log_output_deinit(o);
    o->inside = o->failing = false;
    memset(&o->peer, 0, sizeof o->peer);
    snprintf(o->name, sizeof o->name, "%s", strncmp(to, "file ", 5) == 0 ? to + 5 : to);
    set_head(o);
    if (strcmp(to, "stdout") == 0) {
        o->kind = OUTPUT_STDOUT;
        sink_init(&o->sink, STDOUT_FILENO);
    } else if (strncmp(to, "file ", 5) == 0) {
        o->kind = OUTPUT_FILE;
    } else if (strncmp(to, "unix ", 5) == 0) {
        set_unix(o, to + 5);
    } else if (sscanf(to, "udp %63s %d", host, &port) == 2) {
        set_udp(o, host, port);
    }
}

void log_output_reopen(struct log_output *o)
{
    if (o->kind != OUTPUT_FILE)
        return;
    close_fd(o);
    o->inside = false; /* its rest goes to the file that has its beginning, or nowhere */
    open_file(o);
}
