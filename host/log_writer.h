/* The process that writes the access log: it reads the pipes of all workers and writes whole lines
 * to stdout, a file or syslog. It is apart from the master so that a disk that hangs keeps nobody
 * from serving: then it does not read, the pipes fill, and the workers drop lines and count them.
 * The master holds the pipes too, so that a log writer that dies is replaced and nothing that
 * stands in them is lost.
 *
 * The master tells it: "to WHERE" (log_output.h), "pipe SLOT" with the end of a pipe, "reopen";
 * "end": read what is there and end; "leave": end at once, but between lines. */
#ifndef TOLLGATE_LOG_WRITER_H
#define TOLLGATE_LOG_WRITER_H

/* Arguments of the internal command: control fd, zone fd, seconds that workers may outlive the
 * master. Returns the exit code. */
int log_writer_main(int argc, char **argv);

#endif
