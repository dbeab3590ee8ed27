/* See worker_internal.h. The master asks a stuck loop to let go by SIGUSR1: its handler sets a hook
 * that raises in whatever Lua runs, so an interpreted loop becomes an error of its request. The
 * hook does not fire in compiled code or in a long C call; then the master kills. */
#include <lauxlib.h>
#include <signal.h>
#include <unistd.h>

#include "worker_internal.h"

enum { ORPHAN_ALARM_S = 2 };

static struct worker *the_worker; /* for the handlers */
static pid_t the_master;

static void raise_hook(lua_State *L, lua_Debug *ar)
{
    (void)ar;
    lua_sethook(L, NULL, 0, 0);
    if (the_worker->interrupted ==
        the_worker->turns + 1) /* else that Lua ended before the hook could fire */
        luaL_error(
            L,
            "the watchdog interrupts this code: it has kept the worker from serving for too long");
}

/* As luajit's own interpreter does on SIGINT; lua_sethook may be called from a handler. */
static void on_interrupt(int signum)
{
    struct worker *w = the_worker;
    lua_State *L = w->gw.sv.watch.running;
    (void)signum;
    if (L == NULL)
        return;
    w->interrupted = w->turns + 1;
    lua_sethook(L, raise_hook, LUA_MASKCALL | LUA_MASKRET | LUA_MASKCOUNT, 1);
}

/* The master died (PR_SET_PDEATHSIG). A loop that turns sees the control channel end and takes
 * over; a stuck one ends by the alarm. Where the master lives, somebody told all processes to end
 * (pkill, a service manager), and it is the master who says how. */
static void on_orphaned(int signum)
{
    (void)signum;
    if (getppid() != the_master && !the_worker->orphaned)
        alarm(ORPHAN_ALARM_S);
}

static void handle(int signum, void (*handler)(int))
{
    struct sigaction sa = { .sa_flags = SA_RESTART };
    sa.sa_handler = handler;
    sigaction(signum, &sa, NULL);
}

void worker_signals(struct worker *w)
{
    the_worker = w;
    the_master = getppid();
    handle(SIGPIPE, SIG_IGN);
    handle(SIGHUP, SIG_IGN);
    handle(SIGINT, SIG_IGN);
    handle(SIGUSR2, SIG_IGN);
    handle(SIGUSR1, on_interrupt);
    handle(SIGTERM, on_orphaned);
}

void worker_signals_end(void)
{
    handle(SIGUSR1, SIG_IGN);
    handle(SIGTERM, SIG_IGN);
}
