/* The error log: one line an entry on stderr, "time level [request id] text". Text that came from
 * outside is written with control characters escaped, so that nobody can forge a line.
 *
 * Who serves never waits for a reader that is slow: some entries are kept for it, and what it
 * leaves beyond these is dropped and counted. Tools wait. */
#ifndef TOLLGATE_LOG_H
#define TOLLGATE_LOG_H

#include <stdbool.h>
#include <stdint.h>

enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARN, LOG_ERROR, LOG_SILENT };

void log_set_level(enum log_level level);
/* 0, or -1 where the name is none of debug, info, warn, error. */
int log_level_of(const char *name, enum log_level *out);
bool log_enabled(enum log_level level);
/* `id` is a request id, or NULL for what belongs to no request. No newline at the end. */
void log_write(enum log_level level, const char *id, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Gives the reader what was kept; to be called now and then. */
void log_flush(void);
/* From now on the reader is not waited for, and what is dropped is counted there. */
void log_never_wait(uint64_t *count);

#define log_debug(...)                                                                             \
    do {                                                                                           \
        if (log_enabled(LOG_DEBUG))                                                                \
            log_write(LOG_DEBUG, NULL, __VA_ARGS__);                                               \
    } while (0)
#define log_info(...)  log_write(LOG_INFO, NULL, __VA_ARGS__)
#define log_warn(...)  log_write(LOG_WARN, NULL, __VA_ARGS__)
#define log_error(...) log_write(LOG_ERROR, NULL, __VA_ARGS__)

#endif
