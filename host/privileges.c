/* See privileges.h. The order is what counts: groups before the user, which may not change them any
 * more, and the bounding set before the capability that changes it is gone. */
#include "privileges.h"

#include <errno.h>
#include <ftw.h>
#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

enum { CAPABILITIES = 64, OPEN_FOLDERS = 16 };

static int fail(char why[PRIVILEGES_WHY], const char *what, const char *name)
{
    snprintf(why, PRIVILEGES_WHY, "%s%s%s", what, name[0] != '\0' ? " " : "", name);
    return -1;
}

static bool number(const char *text, unsigned long *out)
{
    char *end;
    if (text[0] < '0' || text[0] > '9')
        return false;
    errno = 0;
    *out = strtoul(text, &end, 10);
    return *end == '\0' && errno == 0 && *out < 0xffffffffUL;
}

static int find_group(const char *name, gid_t *out, char why[PRIVILEGES_WHY])
{
    unsigned long n;
    const struct group *g = getgrnam(name);
    if (g != NULL)
        *out = g->gr_gid;
    else if (number(name, &n))
        *out = (gid_t)n;
    else
        return fail(why, "there is no group", name);
    return 0;
}

int privileges_find(const char *text, struct identity *out, char why[PRIVILEGES_WHY])
{
    char name[128];
    unsigned long n;
    snprintf(name, sizeof name, "%s", text);
    char *group = strchr(name, ':');
    if (group != NULL)
        *group++ = '\0';
    const struct passwd *p = getpwnam(name);
    if (p != NULL) {
        *out = (struct identity){ p->pw_uid, p->pw_gid };
    } else if (number(name, &n)) {
        p = getpwuid((uid_t)n);
        if (p == NULL && group == NULL)
            return fail(why, "a number without an account needs a group:", name);
        *out = (struct identity){ (uid_t)n, p != NULL ? p->pw_gid : 0 };
    } else {
        return fail(why, "there is no user", name);
    }
    if (group != NULL && find_group(group, &out->gid, why) != 0)
        return -1;
    if (out->uid == 0)
        return fail(why, "this is root:", name);
    return 0;
}

/* --- becoming it --- */

static bool is(const struct identity *id)
{
    uid_t r, e, s;
    gid_t gr, ge, gs;
    return getresuid(&r, &e, &s) == 0 && getresgid(&gr, &ge, &gs) == 0 && r == id->uid &&
           e == id->uid && s == id->uid && gr == id->gid && ge == id->gid && gs == id->gid;
}

/* No capability is left in any of the sets that count now or after an exec. */
static bool is_bare(void)
{
    static const char *const sets[] = { "CapInh:", "CapPrm:", "CapEff:", "CapAmb:" };
    char line[256];
    size_t bare = 0;
    FILE *f = fopen("/proc/self/status", "re");
    if (f == NULL) /* without /proc nothing can be seen; the calls have said that they did it */
        return true;
    while (fgets(line, sizeof line, f) != NULL) {
        for (size_t i = 0; i < sizeof sets / sizeof *sets; i++) {
            size_t n = strlen(sets[i]);
            if (strncmp(line, sets[i], n) == 0 && strtoull(line + n, NULL, 16) == 0)
                bare++;
        }
    }
    fclose(f);
    return bare == sizeof sets / sizeof *sets;
}

static void drop_bounds(void)
{
    for (unsigned long c = 0; c < CAPABILITIES && prctl(PR_CAPBSET_READ, c, 0, 0, 0) >= 0; c++)
        prctl(PR_CAPBSET_DROP, c, 0, 0, 0);
    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
}

int privileges_become(const struct identity *id, char why[PRIVILEGES_WHY])
{
    if (geteuid() != 0) {
        if (!is(id))
            return fail(why, "only root can become another user: start as root, or leave it out",
                        "");
        return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 ? 0 : fail(why, strerror(errno), "");
    }
    drop_bounds();
    if (setgroups(0, NULL) != 0 || setresgid(id->gid, id->gid, id->gid) != 0 ||
        setresuid(id->uid, id->uid, id->uid) != 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
        return fail(why, strerror(errno), "");
    if (!is(id) || getgroups(0, NULL) != 0 || setuid(0) == 0 || !is_bare())
        return fail(why, "root's rights could not be given up", "");
    return 0;
}

/* --- files --- */

static const struct identity *owner; /* for nftw, which hands nothing on */
static int trouble;

static int give(const char *path, const struct stat *st, int type, struct FTW *where)
{
    (void)where;
    if ((type == FTW_F && st->st_nlink > 1) ||
        (st->st_uid == owner->uid && st->st_gid == owner->gid))
        return 0;
    if (lchown(path, owner->uid, owner->gid) != 0 && errno != ENOENT)
        trouble = -errno;
    return 0;
}

int privileges_own(const char *path, const struct identity *id)
{
    owner = id;
    trouble = 0;
    if (nftw(path, give, OPEN_FOLDERS, FTW_PHYS | FTW_MOUNT) != 0)
        return -errno;
    return trouble;
}

void privileges_own_folder(const char *path, const struct identity *id)
{
    struct stat st;
    if (lstat(path, &st) == 0 && S_ISDIR(st.st_mode) && st.st_uid == 0 &&
        lchown(path, id->uid, id->gid) != 0)
        return; /* what needs it will say so */
}

/* --- core dumps --- */

void privileges_hide(void)
{
    struct rlimit none = { 0, 0 };
    setrlimit(RLIMIT_CORE, &none);
    prctl(PR_SET_DUMPABLE, 0, 0, 0, 0); /* a handler of core dumps does not heed the limit */
}

void privileges_hide_too(void)
{
    struct rlimit r;
    if (getrlimit(RLIMIT_CORE, &r) == 0 && r.rlim_max == 0)
        prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
}
