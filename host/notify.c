/* See notify.h. */
#include "notify.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

void notify(const char *state)
{
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un to = { .sun_family = AF_UNIX };
    if (path == NULL || (path[0] != '/' && path[0] != '@') || strlen(path) >= sizeof to.sun_path)
        return;
    strcpy(to.sun_path, path);
    if (to.sun_path[0] == '@')
        to.sun_path[0] = '\0'; /* an abstract one */
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return;
    ssize_t ignored = sendto(fd, state, strlen(state), MSG_NOSIGNAL, (struct sockaddr *)&to,
                             (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(path)));
    (void)ignored; /* there is nobody else to tell */
    close(fd);
}

void notify_reloading(void)
{
    char text[64];
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    snprintf(text, sizeof text, "RELOADING=1\nMONOTONIC_USEC=%lld",
             (long long)ts.tv_sec * 1000000 + ts.tv_nsec / 1000);
    notify(text);
}
