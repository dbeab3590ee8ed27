/* See paths.h. */
#include "paths.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <uv.h>

enum { LOCK_TRY_MS = 50 };

static int is_home(const char *dir)
{
    char probe[PATH_MAX + 32];
    snprintf(probe, sizeof probe, "%s/scripts/redis/admit.lua", dir);
    return access(probe, R_OK) == 0;
}

const char *paths_home(char *out, size_t size)
{
    const char *home = getenv("TOLLGATE_HOME");
    char exe[PATH_MAX];
    if (home != NULL && home[0] != '\0') {
        snprintf(out, size, "%s", home);
        return out;
    }
    ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);
    if (n > 0) {
        exe[n] = '\0';
        char *slash = strrchr(exe, '/');
        *slash = '\0';
        snprintf(out, size, "%s/../share/tollgate", exe);
        if (is_home(out))
            return out;
    }
    snprintf(out, size, "%s", is_home(TOLLGATE_DATA_DIR) ? TOLLGATE_DATA_DIR : TOLLGATE_SOURCE_DIR);
    return out;
}

const char *paths_image(void)
{
    const char *image = getenv("TOLLGATE_IMAGE");
    return image != NULL && image[0] != '\0' ? image : "/proc/self/exe";
}

int paths_lock(const char *path, int wait_ms)
{
    struct stat st;
    for (int waited = 0; waited <= wait_ms; waited += LOCK_TRY_MS) {
        int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        if (fd < 0)
            return -errno;
        if (flock(fd, LOCK_EX | LOCK_NB) == 0 && fstat(fd, &st) == 0 && st.st_nlink > 0)
            return fd;
        close(fd); /* another has it, or had it and took it away */
        usleep(LOCK_TRY_MS * 1000);
    }
    return UV_EBUSY;
}

int paths_make(const char *dir)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s", dir);
    for (char *p = path + 1; *p != '\0'; p++) {
        if (*p != '/')
            continue;
        *p = '\0';
        if (mkdir(path, 0755) != 0 && errno != EEXIST)
            return -errno;
        *p = '/';
    }
    return mkdir(path, 0700) != 0 && errno != EEXIST ? -errno : 0;
}
