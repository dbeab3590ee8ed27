/* sink: no reader is waited for, and what others share stays as it was. */
#include "sink.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

/* Writes until nothing is taken; then reads, and more is taken. Every byte comes out, in order. */
static void fill_and_empty(const struct sink *s, int reader)
{
    static unsigned char piece[10000], got[10000];
    size_t written = 0, read_so_far = 0;
    ssize_t n;
    for (int round = 0; round < 3; round++) {
        do {
            for (size_t i = 0; i < sizeof piece; i++)
                piece[i] = (unsigned char)((written + i) % 251);
            n = sink_write(s, (char *)piece, sizeof piece);
            assert_true(n >= 0);
            written += (size_t)n;
        } while (n > 0);
        assert_true(written > 0);
        while (read_so_far < written) {
            n = read(reader, got, sizeof got);
            assert_true(n > 0);
            for (ssize_t i = 0; i < n; i++)
                assert_int_equal(got[i], (read_so_far + (size_t)i) % 251);
            read_so_far += (size_t)n;
        }
    }
}

static void writes_to_a_pipe_that_others_share(void **state)
{
    (void)state;
    int ends[2];
    struct sink s;
    assert_int_equal(pipe(ends), 0);
    sink_init(&s, ends[1]);
    assert_int_equal(s.kind, SINK_OWN);
    fill_and_empty(&s, ends[0]);
    assert_int_equal(fcntl(ends[1], F_GETFL) & O_NONBLOCK, 0);
    sink_deinit(&s);
    s = (struct sink){ ends[1], SINK_SHARED }; /* where it could not be opened anew */
    fill_and_empty(&s, ends[0]);
    close(ends[0]);
    assert_int_equal(sink_write(&s, "x", 1), -EPIPE);
    close(ends[1]);
}

static void writes_to_a_socket(void **state)
{
    (void)state;
    int ends[2];
    struct sink s;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    sink_init(&s, ends[1]);
    assert_int_equal(s.kind, SINK_SOCKET);
    fill_and_empty(&s, ends[0]);
    assert_int_equal(fcntl(ends[1], F_GETFL) & O_NONBLOCK, 0);
    close(ends[0]);
    assert_int_equal(sink_write(&s, "x", 1), -EPIPE);
    close(ends[1]);
}

static void writes_to_a_file(void **state)
{
    (void)state;
    char path[] = "/tmp/sink_test.XXXXXX", got[8] = "";
    int fd = mkstemp(path);
    struct sink s;
    unlink(path);
    sink_init(&s, fd);
    assert_int_equal(s.kind, SINK_FILE);
    assert_int_equal(sink_write(&s, "hello", 5), 5);
    assert_int_equal(pread(fd, got, sizeof got, 0), 5);
    assert_string_equal(got, "hello");
    close(fd);
    fd = open("/dev/full", O_WRONLY);
    s = (struct sink){ fd, SINK_FILE };
    assert_int_equal(sink_write(&s, "x", 1), -ENOSPC);
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(writes_to_a_pipe_that_others_share),
        cmocka_unit_test(writes_to_a_socket),
        cmocka_unit_test(writes_to_a_file),
    };
    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
