/* See progress.h. */
#include "progress.h"

#include <signal.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

static struct {
    const char *what;
    volatile sig_atomic_t seconds;
} at;

/* Only what a signal handler may call. */
static void on_alarm(int signum)
{
    char line[128], digits[12];
    size_t n = strnlen(at.what, sizeof line - 24), k = sizeof digits;
    int s = ++at.seconds;
    (void)signum;
    do
        digits[--k] = (char)('0' + s % 10);
    while ((s /= 10) > 0);
    line[0] = '\r';
    memcpy(line + 1, at.what, n++);
    memcpy(line + n, ": ", 2);
    memcpy(line + n + 2, digits + k, sizeof digits - k);
    n += 2 + sizeof digits - k;
    memcpy(line + n, " s", 2);
    if (write(STDERR_FILENO, line, n + 2) < 0)
        return; /* nobody looks */
}

static void set(int seconds)
{
    struct itimerval t = { { seconds, 0 }, { seconds, 0 } };
    setitimer(ITIMER_REAL, &t, NULL);
}

void progress_begin(const char *what)
{
    struct sigaction sa = { .sa_handler = on_alarm, .sa_flags = SA_RESTART };
    if (!isatty(STDERR_FILENO))
        return;
    at.what = what;
    at.seconds = 0;
    sigaction(SIGALRM, &sa, NULL);
    set(1);
}

void progress_end(void)
{
    static const char clear[] = "\r\033[K";
    if (at.what == NULL)
        return;
    set(0);
    signal(SIGALRM, SIG_DFL);
    if (at.seconds > 0 && write(STDERR_FILENO, clear, sizeof clear - 1) < 0)
        return;
    at.what = NULL;
}
