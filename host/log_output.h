/* Where the log writer's lines go: stdout, a file, or a syslog daemon (RFC 5424). It waits for no
 * reader; a file's disk it may wait for, which is why the log writer is a process of its own. What
 * cannot be written is given up and counted, and the error log is told once, and once more when it
 * is well again. */
#ifndef TOLLGATE_LOG_OUTPUT_H
#define TOLLGATE_LOG_OUTPUT_H

#include <limits.h>
#include <stdint.h>
#include <sys/socket.h>

#include "buf.h"
#include "sink.h"

enum output_kind { OUTPUT_NONE, OUTPUT_STDOUT, OUTPUT_FILE, OUTPUT_UNIX, OUTPUT_UDP };

struct log_output {
    enum output_kind kind;
    char name[PATH_MAX]; /* as it was configured */
    struct sink sink;    /* of stdout */
    int fd;              /* of the others; -1: not open */
    union {
        struct sockaddr sa;
        struct sockaddr_storage space;
    } peer;
    socklen_t peer_size;
    bool inside; /* a line has been written in part */
    bool failing;
    uint64_t failed_since; /* lines */
    uint64_t *written, *failed;
    char head[320]; /* of syslog messages, behind the time */
};

/* written and failed count lines; borrowed. */
void log_output_init(struct log_output *o, uint64_t *written, uint64_t *failed);
void log_output_deinit(struct log_output *o);
/* "stdout", "file PATH", "unix PATH", "udp HOST PORT". */
void log_output_set(struct log_output *o, const char *to);
/* A file is opened anew by its name. */
void log_output_reopen(struct log_output *o);
/* Takes whole lines out of the buffer, as many as can be written now. True where nothing is left.
 */
bool log_output_write(struct log_output *o, struct buf *lines);

#endif
