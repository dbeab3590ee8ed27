/* See log.h. An entry is one write(2), so that entries of several processes do not mix; what is
 * kept for a slow reader goes entry by entry too. Buffers are static: the log works where memory is
 * what there is a problem with. */
#include "log.h"

#include <inttypes.h>

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "sink.h"

enum {
    LOG_LINE = 8192,  /* bytes; longer entries are cut */
    LOG_KEPT = 262144 /* bytes for a reader that is slow */
};

static enum log_level threshold = LOG_INFO;
static const char *const names[] = { "debug", "info", "warn", "error" };

static bool waits = true;
static struct sink sink; /* where it does not */
static struct {
    size_t n;
    char bytes[LOG_KEPT]; /* entries, the length of each as a size_t before it */
} kept;
static uint64_t *dropped, told; /* told: those that the log has told of; dropped: unless it waits */

void log_set_level(enum log_level level)
{
    threshold = level;
}

int log_level_of(const char *name, enum log_level *out)
{
    for (int i = LOG_DEBUG; i <= LOG_ERROR; i++) {
        if (strcmp(name, names[i]) == 0) {
            *out = (enum log_level)i;
            return 0;
        }
    }
    return -1;
}

bool log_enabled(enum log_level level)
{
    return level >= threshold;
}

static size_t put_time(char *out, size_t size)
{
    struct timespec ts;
    struct tm tm;
    clock_gettime(CLOCK_REALTIME, &ts);
    gmtime_r(&ts.tv_sec, &tm);
    size_t n = strftime(out, size, "%Y-%m-%dT%H:%M:%S", &tm);
    return n + (size_t)snprintf(out + n, size - n, ".%03ldZ", ts.tv_nsec / 1000000);
}

/* Copies text, escaping control characters; a newline goes on as "\n\t" so that tracebacks stay
 * readable. */
static size_t put_text(char *out, size_t size, const char *text)
{
    size_t n = 0;
    for (const unsigned char *c = (const unsigned char *)text; *c != '\0' && n + 6 < size; c++) {
        if (*c == '\n') {
            out[n++] = '\n';
            out[n++] = '\t';
        } else if ((*c < 0x20 && *c != '\t') || *c == 0x7f) {
            n += (size_t)snprintf(out + n, size - n, "\\x%02x", *c);
        } else {
            out[n++] = (char)*c;
        }
    }
    return n;
}

/* --- to the reader --- */

/* Returns false where the reader takes nothing now. An entry of which a part was taken goes on
 * later. A log that cannot be written has nowhere to say so. */
static bool give(const char *line, size_t *n)
{
    ssize_t taken = waits ? write(STDERR_FILENO, line, *n) : sink_write(&sink, line, *n);
    if (waits)
        return true;
    *n = taken < 0 ? 0 : *n - (size_t)taken;
    return *n == 0;
}

static void keep(const char *line, size_t n)
{
    if (kept.n + sizeof n + n > sizeof kept.bytes) {
        ++*dropped;
        return;
    }
    memcpy(kept.bytes + kept.n, &n, sizeof n);
    memcpy(kept.bytes + kept.n + sizeof n, line, n);
    kept.n += sizeof n + n;
}

static void take_away(size_t n)
{
    kept.n -= n;
    memmove(kept.bytes, kept.bytes + n, kept.n);
}

void log_flush(void)
{
    size_t at = 0;
    while (at < kept.n) {
        size_t n, left;
        memcpy(&n, kept.bytes + at, sizeof n);
        left = n;
        if (!give(kept.bytes + at + sizeof n, &left)) { /* its end stays, as an entry */
            at += n - left;
            memcpy(kept.bytes + at, &left, sizeof left);
            break;
        }
        at += sizeof n + n;
    }
    if (at > 0)
        take_away(at);
    if (kept.n == 0 && !waits && *dropped > told) {
        uint64_t n = *dropped - told;
        told = *dropped;
        log_warn("log: its reader was too slow; %" PRIu64 " entries were dropped", n);
    }
}

static void put(const char *line, size_t n)
{
    size_t left = n;
    if (kept.n > 0)
        log_flush();
    if (kept.n > 0)
        keep(line, n);
    else if (!give(line, &left))
        keep(line + n - left, left);
}

void log_never_wait(uint64_t *count)
{
    told = *count;
    dropped = count;
    if (waits)
        sink_init(&sink, STDERR_FILENO);
    waits = false;
}

void log_write(enum log_level level, const char *id, const char *format, ...)
{
    if (level < threshold)
        return;
    char text[LOG_LINE], line[LOG_LINE + 128];
    va_list ap;
    va_start(ap, format);
    vsnprintf(text, sizeof text, format, ap);
    va_end(ap);
    size_t n = put_time(line, sizeof line);
    n += (size_t)snprintf(line + n, sizeof line - n, id != NULL ? " %-5s [%.64s] " : " %-5s ",
                          names[level], id);
    n += put_text(line + n, sizeof line - n - 1, text);
    line[n++] = '\n';
    put(line, n);
}
