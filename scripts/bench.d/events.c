/*
 * An origin of server-sent events, for benchmarks: events.c PORT FILE. Each request gets a stream
 * of chunks of which each is one event and one write: the first at once, then one every PERIOD_MS,
 * usage and [DONE] behind EVENTS of them. A path that begins with /hold has a stream without an
 * end, an event every HOLD_PERIODS. FILE holds the number of events that were sent, a uint64,
 * mapped, so that others read it at any time. Nothing is tidy on the way out: it is killed.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

enum { MOST = 65536, EVENTS = 100, PERIOD_MS = 4, HOLD_PERIODS = 500, REQUEST_MAX = 4096 };

enum state { FREE, READING, STREAMING, HOLDING };

struct conn {
    enum state state;
    int sent;
    size_t got;
    char *request;
};

static struct conn conns[MOST];
static int last; /* descriptors up to it are in use */
static volatile uint64_t *count;

static const char HEAD[] =
    "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
static const char EVENT[] =
    "data: {\"id\":\"chatcmpl-9x\",\"object\":\"chat.completion.chunk\",\"created\":1700000000,"
    "\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\" word\"},"
    "\"finish_reason\":null}]}\n\n";
static const char USAGE[] =
    "data: {\"id\":\"chatcmpl-9x\",\"object\":\"chat.completion.chunk\",\"created\":1700000000,"
    "\"model\":\"m\",\"choices\":[],\"usage\":{\"prompt_tokens\":19,\"completion_tokens\":100,"
    "\"total_tokens\":119}}\n\ndata: [DONE]\n\n";

static void drop(int fd)
{
    close(fd);
    conns[fd].state = FREE;
    conns[fd].got = 0;
}

static int send_text(int fd, const char *text, size_t len)
{
    if (send(fd, text, len, MSG_NOSIGNAL) == (ssize_t)len)
        return 0;
    drop(fd);
    return -1;
}

static int send_event(int fd, const char *before, const char *event, const char *after)
{
    char out[1024];
    int len = snprintf(out, sizeof(out), "%s%zx\r\n%s\r\n%s", before, strlen(event), event, after);
    if (send_text(fd, out, (size_t)len) != 0)
        return -1;
    (*count)++;
    return 0;
}

/* Whether the request is whole: its head, and as much body as that tells. */
static int whole(struct conn *c)
{
    c->request[c->got] = '\0';
    char *end = strstr(c->request, "\r\n\r\n");
    if (!end)
        return 0;
    char *length = strcasestr(c->request, "\r\ncontent-length:");
    size_t body = length && length < end ? strtoul(length + 17, NULL, 10) : 0;
    return c->got >= (size_t)(end + 4 - c->request) + body;
}

static void on_readable(int fd)
{
    struct conn *c = &conns[fd];
    if (!c->request)
        c->request = malloc(REQUEST_MAX + 1);
    ssize_t n = recv(fd, c->request + c->got, REQUEST_MAX - c->got, 0);
    if (n < 0 && errno == EAGAIN)
        return;
    if (n <= 0 || !c->request) {
        drop(fd);
        return;
    }
    c->got += (size_t)n;
    if (c->state != READING || !whole(c))
        return;
    c->state = strstr(c->request, " /hold") ? HOLDING : STREAMING;
    c->got = 0;
    c->sent = 1;
    send_event(fd, HEAD, EVENT, "");
}

static void on_tick(uint64_t tick)
{
    for (int fd = 0; fd <= last; fd++) {
        struct conn *c = &conns[fd];
        if (c->state == HOLDING && tick % HOLD_PERIODS == (uint64_t)fd % HOLD_PERIODS)
            send_event(fd, "", EVENT, "");
        if (c->state != STREAMING)
            continue;
        if (++c->sent <= EVENTS) {
            send_event(fd, "", EVENT, "");
        } else if (send_event(fd, "", USAGE, "0\r\n\r\n") == 0) {
            c->state = READING;
        }
    }
}

static void on_accept(int listener, int epoll)
{
    int fd;
    while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK)) >= 0) {
        if (fd >= MOST) {
            close(fd);
            continue;
        }
        int one = 1;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
        conns[fd].state = READING;
        if (fd > last)
            last = fd;
        struct epoll_event e = { .events = EPOLLIN, .data.fd = fd };
        epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &e);
    }
}

static int listen_on(int port)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), one = 1;
    struct sockaddr_in a = { .sin_family = AF_INET,
                             .sin_port = htons((uint16_t)port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    if (bind(fd, (struct sockaddr *)&a, sizeof(a)) != 0 || listen(fd, 16384) != 0) {
        perror("events: listen");
        exit(1);
    }
    return fd;
}

int main(int argc, char **argv)
{
    int file = argc == 3 ? open(argv[2], O_RDWR | O_CREAT | O_TRUNC, 0600) : -1;
    if (file < 0 || ftruncate(file, sizeof(*count)) != 0) {
        fprintf(stderr, "usage: events PORT FILE\n");
        return 2;
    }
    count = mmap(NULL, sizeof(*count), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    int listener = listen_on(atoi(argv[1])), epoll = epoll_create1(0),
        timer = timerfd_create(CLOCK_MONOTONIC, 0);
    struct itimerspec period = { .it_interval.tv_nsec = PERIOD_MS * 1000000L,
                                 .it_value.tv_nsec = PERIOD_MS * 1000000L };
    timerfd_settime(timer, 0, &period, NULL);
    epoll_ctl(epoll, EPOLL_CTL_ADD, listener,
              &(struct epoll_event){ .events = EPOLLIN, .data.fd = listener });
    epoll_ctl(epoll, EPOLL_CTL_ADD, timer,
              &(struct epoll_event){ .events = EPOLLIN, .data.fd = timer });
    uint64_t tick = 0, expired;
    for (;;) {
        struct epoll_event events[256];
        int n = epoll_wait(epoll, events, 256, -1);
        for (int i = 0; i < n; i++) {
            int fd = events[i].data.fd;
            if (fd == listener)
                on_accept(listener, epoll);
            else if (fd == timer && read(timer, &expired, sizeof(expired)) > 0)
                on_tick(tick++);
            else if (fd != timer && conns[fd].state != FREE)
                on_readable(fd);
        }
    }
}
