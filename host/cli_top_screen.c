/* See cli_top_screen.h. */
#include "cli_top_screen.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/signalfd.h>
#include <termios.h>
#include <unistd.h>
#include <uv.h>

#include "buf.h"

enum { PIECE = 256 }; /* bytes that a terminal which can be written takes without waiting */

static const char enter[] = "\033[?1049h\033[?25l\033[H\033[2J",
                  leave[] = "\033[?25h\033[0m\033[?1049l";
static const int heard[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGCONT, SIGWINCH };
static const int defects[] = { SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL };

static struct {
    struct termios before;
    sigset_t mask, mask_before;
    int signals;
    volatile sig_atomic_t open;
} screen = { .signals = -1 };

static void put(const char *text, size_t n)
{
    while (n > 0) {
        ssize_t k = write(STDOUT_FILENO, text, n);
        if (k < 0 && errno != EINTR)
            return;
        text += k > 0 ? k : 0;
        n -= k > 0 ? (size_t)k : 0;
    }
}

/* Async-signal-safe. */
static void restore(void)
{
    if (!screen.open)
        return;
    screen.open = 0;
    tcflow(STDOUT_FILENO, TCOON); /* output that was held by ^S would hold us */
    put(leave, sizeof leave - 1);
    tcsetattr(STDIN_FILENO, TCSAFLUSH, &screen.before);
}

static void on_defect(int signal)
{
    restore();
    raise(signal); /* SA_RESETHAND: by default now */
}

static int enter_screen(void)
{
    struct termios t = screen.before;
    t.c_lflag &= ~(tcflag_t)(ICANON | ECHO | ECHOE | ECHOK | ECHONL);
    t.c_iflag |= ICRNL;
    t.c_cc[VMIN] = 1;
    t.c_cc[VTIME] = 0;
    if (tcsetattr(STDIN_FILENO, TCSAFLUSH, &t) != 0)
        return uv_translate_sys_error(errno);
    screen.open = 1;
    put(enter, sizeof enter - 1);
    return 0;
}

/* The terminal may have been changed while we were stopped. */
static int enter_again(void)
{
    if (tcgetattr(STDIN_FILENO, &screen.before) != 0)
        return uv_translate_sys_error(errno);
    return enter_screen();
}

int screen_open(void)
{
    sigemptyset(&screen.mask);
    for (size_t i = 0; i < sizeof heard / sizeof *heard; i++)
        sigaddset(&screen.mask, heard[i]);
    screen.signals = signalfd(-1, &screen.mask, SFD_CLOEXEC | SFD_NONBLOCK);
    if (screen.signals < 0)
        return uv_translate_sys_error(errno);
    sigprocmask(SIG_BLOCK, &screen.mask, &screen.mask_before);
    for (size_t i = 0; i < sizeof defects / sizeof *defects; i++)
        sigaction(defects[i],
                  &(struct sigaction){ .sa_handler = on_defect, .sa_flags = SA_RESETHAND }, NULL);
    atexit(restore);
    int err = enter_again();
    if (err != 0)
        screen_close();
    return err;
}

void screen_close(void)
{
    restore();
    if (screen.signals < 0)
        return;
    close(screen.signals);
    screen.signals = -1;
    sigprocmask(SIG_SETMASK, &screen.mask_before, NULL);
}

int screen_signals(void)
{
    return screen.signals;
}

/* Lets a signal do by default what it does. Comes back from one that stops. */
static void deliver(int number)
{
    sigset_t one;
    signal(number, SIG_DFL);
    sigemptyset(&one);
    sigaddset(&one, number);
    raise(number);
    sigprocmask(SIG_UNBLOCK, &one, NULL);
    sigprocmask(SIG_BLOCK, &one, NULL);
}

bool screen_take_signals(void)
{
    struct signalfd_siginfo info;
    bool anew = false;
    while (read(screen.signals, &info, sizeof info) == (ssize_t)sizeof info) {
        int number = (int)info.ssi_signo;
        anew = true;
        if (number == SIGCONT) /* behind a SIGSTOP, which nobody hears */
            enter_screen();
        if (number == SIGWINCH || number == SIGCONT)
            continue;
        restore();
        deliver(number);
        if (number != SIGTSTP || enter_again() != 0)
            exit(128 + number); /* a signal that our parent had us ignore */
    }
    return anew;
}

static bool put_frame(struct slice text)
{
    while (text.n > 0) {
        struct pollfd to[] = { { STDOUT_FILENO, POLLOUT, 0 }, { screen.signals, POLLIN, 0 } };
        if (poll(to, 2, -1) < 0 && errno != EINTR)
            return false;
        if (to[1].revents != 0)
            return true;
        if ((to[0].revents & (POLLERR | POLLHUP)) != 0)
            return false;
        if ((to[0].revents & POLLOUT) == 0)
            continue;
        ssize_t k = write(STDOUT_FILENO, text.p, text.n < PIECE ? text.n : PIECE);
        if (k < 0 && errno != EINTR && errno != EAGAIN)
            return false;
        if (k > 0)
            text = (struct slice){ text.p + k, text.n - (size_t)k };
    }
    return true;
}

/* A line is wiped before it is written: behind one that is as wide as the terminal, wiping would
 * take its last cell. */
bool screen_draw(struct slice lines)
{
    struct buf out;
    buf_init(&out);
    buf_add_text(&out, "\033[H\033[K");
    for (size_t i = 0; i < lines.n; i++) {
        buf_add(&out, lines.p + i, 1);
        if (lines.p[i] == '\n')
            buf_add_text(&out, "\033[K");
    }
    bool there = put_frame(buf_slice(&out));
    buf_deinit(&out);
    return there;
}
