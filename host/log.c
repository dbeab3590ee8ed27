/* See log.h. An entry is one write(2), so that entries of several processes do not mix. */
#include "log.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { LOG_LINE = 8192 }; /* bytes; longer entries are cut */

static enum log_level threshold = LOG_INFO;
static const char *const names[] = { "debug", "info", "warn", "error" };

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
    /* A log that cannot be written has nowhere to say so. */
    ssize_t ignored = write(STDERR_FILENO, line, n);
    (void)ignored;
}
