/* A descriptor that is written and never waited for, whoever reads it and however slowly: stdout
 * and stderr, which other processes share, so that they cannot simply be made non-blocking. A pipe
 * or a terminal is opened once more, as a description of our own that is; where that is not
 * allowed, it is asked before each piece whether it takes PIPE_BUF bytes. To a socket bytes are
 * sent without waiting. A file takes what it is given. */
#ifndef TOLLGATE_SINK_H
#define TOLLGATE_SINK_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

enum sink_kind { SINK_FILE, SINK_OWN, SINK_SHARED, SINK_SOCKET };

struct sink {
    int fd;
    enum sink_kind kind;
};

/* fd is borrowed. */
void sink_init(struct sink *s, int fd);
void sink_deinit(struct sink *s);
/* How many bytes were taken; 0 where the reader takes none now; a negative errno where nobody ever
 * will. */
ssize_t sink_write(const struct sink *s, const char *p, size_t n);

#endif
