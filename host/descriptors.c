/* See descriptors.h. */
#include "descriptors.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

enum { MOST_RESERVED = 1024, PART_RESERVED = 8 };

unsigned long descriptors_raise(void)
{
    struct rlimit r;
    if (getrlimit(RLIMIT_NOFILE, &r) == 0 && r.rlim_cur < r.rlim_max) {
        r.rlim_cur = r.rlim_max;
        setrlimit(RLIMIT_NOFILE, &r);
    }
    return descriptors_limit();
}

unsigned long descriptors_limit(void)
{
    struct rlimit r;
    return getrlimit(RLIMIT_NOFILE, &r) == 0 ? (unsigned long)r.rlim_cur : 1024;
}

unsigned long descriptors_reserve(unsigned long limit)
{
    unsigned long part = limit / PART_RESERVED;
    return part < MOST_RESERVED ? part : MOST_RESERVED;
}

bool descriptors_short(void)
{
    unsigned long limit = descriptors_limit();
    int fd = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 0);
    if (fd < 0)
        return true;
    close(fd);
    return (unsigned long)fd >= limit - descriptors_reserve(limit);
}
