/*
 * Load over many kept connections, for benchmarks: rotate.c PORT CONNECTIONS IN_FLIGHT SECONDS.
 * Opens all of them and has one request on each answered, says "ready", waits for a line, and then
 * sends on all connections in turn with IN_FLIGHT requests under way. Says how many were answered.
 * So the number of connections differs, and what happens at once does not. Answers must be 200 with
 * a Content-Length.
 */
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

struct conn {
    int fd, busy;
    long left; /* bytes of the answer; -1: its head has not come */
};

static const char REQUEST[] = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";

static void fail(const char *what)
{
    perror(what);
    exit(1);
}

static void ask(struct conn *c)
{
    if (send(c->fd, REQUEST, sizeof(REQUEST) - 1, MSG_NOSIGNAL) != (ssize_t)sizeof(REQUEST) - 1)
        fail("rotate: send");
    c->busy = 1;
    c->left = -1;
}

/* Reads what is there; whether the answer is whole. A head comes in one piece: it is small. */
static int answered(struct conn *c)
{
    char text[8192];
    ssize_t n = recv(c->fd, text, sizeof(text) - 1, 0);
    if (n <= 0)
        fail("rotate: closed");
    text[n] = '\0';
    if (c->left < 0) {
        char *end = strstr(text, "\r\n\r\n"), *length = strcasestr(text, "\r\ncontent-length:");
        if (strncmp(text, "HTTP/1.1 200", 12) != 0 || !end || !length)
            fail("rotate: no 200");
        c->left = atol(length + 17) - (n - (end + 4 - text));
    } else {
        c->left -= n;
    }
    if (c->left > 0)
        return 0;
    c->busy = 0;
    return 1;
}

static void connect_to(struct conn *c, int port, int epoll)
{
    struct sockaddr_in a = { .sin_family = AF_INET,
                             .sin_port = htons((unsigned short)port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    int one = 1;
    c->fd = socket(AF_INET, SOCK_STREAM, 0);
    if (c->fd < 0 || connect(c->fd, (struct sockaddr *)&a, sizeof(a)) != 0)
        fail("rotate: connect");
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    ask(c);
    while (!answered(c))
        continue;
    epoll_ctl(epoll, EPOLL_CTL_ADD, c->fd,
              &(struct epoll_event){ .events = EPOLLIN, .data.ptr = c });
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

int main(int argc, char **argv)
{
    if (argc != 5)
        return 2;
    int port = atoi(argv[1]), count = atoi(argv[2]), flying = atoi(argv[3]),
        epoll = epoll_create1(0), next = 0;
    struct conn *conns = calloc((size_t)count, sizeof(*conns));
    for (int i = 0; i < count; i++)
        connect_to(&conns[i], port, epoll);
    printf("ready\n");
    fflush(stdout);
    if (getchar() == EOF)
        return 1;
    long requests = 0;
    double end = now() + atof(argv[4]);
    for (int i = 0; i < flying && i < count; i++)
        ask(&conns[next++ % count]);
    while (now() < end) {
        struct epoll_event events[64];
        int n = epoll_wait(epoll, events, 64, 1000);
        for (int i = 0; i < n; i++) {
            if (!answered(events[i].data.ptr))
                continue;
            requests++;
            while (conns[next % count].busy)
                next++;
            ask(&conns[next++ % count]);
        }
    }
    printf("%ld requests in\n", requests);
    return 0;
}
