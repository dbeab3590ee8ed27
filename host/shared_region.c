/* See shared.h: making and mapping a region. All sizes follow from the region's own, so that
 * processes of one version agree on them without more than its descriptor. The file is sealed:
 * nobody can make it shorter under those who use it. */
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "mem.h"
#include "shared_internal.h"

static const char MAGIC[16] = "tollgate zone 1";

enum {
    SHARD_LEAST = 2 << 20, /* bytes; smaller ones would hold too little of what is large */
    SHARE = 4              /* an entry takes no more than this part of a shard */
};

/* The same in all processes, unlike a time since a process's start. */
static uint64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

/* Maps what is in the file; s->fd is set. */
static int map(struct shared *s, uint64_t size)
{
    void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, s->fd, 0);
    if (p == MAP_FAILED)
        return -errno;
    s->region = p;
    s->nshards = 1;
    while (s->nshards < SHARED_SHARDS_MAX && (uint64_t)s->nshards * 2 * SHARD_LEAST <= size)
        s->nshards *= 2;
    s->shard_size = (size - SHARED_HEAD) / s->nshards / SHARD_ALIGN * SHARD_ALIGN;
    s->hooks.now = now_ms;
    return 0;
}

/* Once the shards are there. */
static void finish(struct shared *s)
{
    s->entry_max = shared_shard(s, 0)->nblocks / SHARE;
    s->scratch = mem_alloc(SHARED_VALUE_MAX);
}

static int init_lock(pthread_mutex_t *lock)
{
    pthread_mutexattr_t a;
    int err = pthread_mutexattr_init(&a);
    if (err != 0)
        return -err;
    pthread_mutexattr_setpshared(&a, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&a, PTHREAD_MUTEX_ROBUST);
    err = pthread_mutex_init(lock, &a);
    pthread_mutexattr_destroy(&a);
    return -err;
}

/* A descriptor of zeroed memory. */
static int make_file(uint64_t size)
{
    int fd = memfd_create("tollgate-shared", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0)
        return -errno;
    if (ftruncate(fd, (off_t)size) == 0 &&
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0)
        return fd;
    int err = -errno;
    close(fd);
    return err;
}

static int fill(struct shared *s, uint64_t size)
{
    struct shared_region *r = s->region;
    if (getrandom(r->secret, sizeof r->secret, 0) != sizeof r->secret)
        return -EIO;
    for (uint32_t i = 0; i < s->nshards; i++) {
        struct shard *sh = shared_shard(s, i);
        int err = init_lock(&sh->lock);
        if (err != 0)
            return err;
        shard_init(sh, s->shard_size);
    }
    r->size = size;
    memcpy(r->magic, MAGIC, sizeof r->magic);
    return 0;
}

int shared_new(struct shared **out, uint64_t size)
{
    if (size < SHARED_SIZE_MIN || size > SHARED_SIZE_MAX)
        return -EINVAL;
    struct shared *s = mem_zalloc(sizeof *s);
    s->fd = make_file(size);
    int err = s->fd < 0 ? s->fd : map(s, size);
    if (err == 0)
        err = fill(s, size);
    if (err != 0) {
        if (s->region != NULL)
            munmap(s->region, size);
        if (s->fd >= 0)
            close(s->fd);
        mem_free(s);
        return err;
    }
    finish(s);
    *out = s;
    return 0;
}

int shared_map(struct shared **out, int fd)
{
    struct stat st;
    if (fstat(fd, &st) != 0)
        return -errno;
    uint64_t size = (uint64_t)st.st_size;
    if (!S_ISREG(st.st_mode) || size < SHARED_SIZE_MIN || size > SHARED_SIZE_MAX)
        return -EINVAL;
    struct shared *s = mem_zalloc(sizeof *s);
    s->fd = fd;
    int err = map(s, size);
    if (err == 0 &&
        (memcmp(s->region->magic, MAGIC, sizeof MAGIC) != 0 || s->region->size != size)) {
        munmap(s->region, size);
        err = -EINVAL;
    }
    if (err != 0) {
        mem_free(s);
        return err;
    }
    finish(s);
    *out = s;
    return 0;
}

void shared_free(struct shared *s)
{
    if (s == NULL)
        return;
    munmap(s->region, s->region->size);
    close(s->fd);
    mem_free(s->scratch);
    mem_free(s);
}

int shared_fd(const struct shared *s)
{
    return s->fd;
}

void shared_set_hooks(struct shared *s, uint64_t (*now)(void), void (*amid)(void))
{
    s->hooks = (struct shard_hooks){ now != NULL ? now : now_ms, amid };
}
