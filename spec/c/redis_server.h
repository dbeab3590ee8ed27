/* For tests: a real redis-server of our own, on a Unix socket in a temporary directory, and a
 * blocking connection to look into it. It ends with the test, by its pid. */
#ifndef TOLLGATE_SPEC_REDIS_SERVER_H
#define TOLLGATE_SPEC_REDIS_SERVER_H

#include <errno.h>
#include <fcntl.h>
#include <hiredis/hiredis.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

struct redis_server {
    pid_t pid;
    char dir[64], path[96], url[128];
    int port; /* 0: none */
    const char *password;
    redisContext *look; /* NULL while it does not run */
};

static inline void redis_server_exec(const struct redis_server *s)
{
    char port[16], log[96];
    const char *argv[] = { "redis-server",
                           "--port",
                           port,
                           "--unixsocket",
                           s->path,
                           "--save",
                           "",
                           "--appendonly",
                           "no",
                           "--dir",
                           s->dir,
                           "--logfile",
                           log,
                           "--bind",
                           "127.0.0.1",
                           "--requirepass",
                           s->password != NULL ? s->password : "",
                           NULL };
    snprintf(port, sizeof port, "%d", s->port);
    snprintf(log, sizeof log, "%s/log", s->dir);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    execvp(argv[0], (char *const *)(uintptr_t)argv);
    _exit(127);
}

/* Starts it again in the same place; its data are gone. */
static inline void redis_server_run(struct redis_server *s)
{
    s->pid = fork();
    if (s->pid == 0)
        redis_server_exec(s);
    for (int i = 0; i < 500; i++) {
        s->look = redisConnectUnix(s->path);
        if (s->look != NULL && s->look->err == 0)
            break;
        redisFree(s->look);
        s->look = NULL;
        usleep(10000);
    }
    if (s->look == NULL) {
        fprintf(stderr, "redis-server does not start in %s\n", s->dir);
        abort();
    }
    if (s->password != NULL)
        freeReplyObject(redisCommand(s->look, "AUTH %s", s->password));
}

static inline void redis_server_start(struct redis_server *s, int port, const char *password)
{
    memset(s, 0, sizeof *s);
    snprintf(s->dir, sizeof s->dir, "/tmp/tollgate-spec-XXXXXX");
    if (mkdtemp(s->dir) == NULL)
        abort();
    snprintf(s->path, sizeof s->path, "%s/redis.sock", s->dir);
    snprintf(s->url, sizeof s->url, "unix://%s", s->path);
    s->port = port;
    s->password = password;
    redis_server_run(s);
}

static inline void redis_server_kill(struct redis_server *s)
{
    redisFree(s->look);
    s->look = NULL;
    if (s->pid > 0) {
        kill(s->pid, SIGKILL);
        waitpid(s->pid, NULL, 0);
    }
    s->pid = 0;
    unlink(s->path);
}

static inline void redis_server_stop(struct redis_server *s)
{
    char log[96];
    redis_server_kill(s);
    snprintf(log, sizeof log, "%s/log", s->dir);
    unlink(log);
    rmdir(s->dir);
}

/* A port that nobody listens on just now. */
static inline int redis_server_free_port(void)
{
    static unsigned next;
    if (next == 0)
        next = 20000 + (unsigned)getpid() % 10000;
    return (int)next++;
}

/* The reply is to be freed; the test ends where the connection fails. */
static inline redisReply *redis_ask(struct redis_server *s, const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    redisReply *reply = redisvCommand(s->look, format, ap);
    va_end(ap);
    if (reply == NULL) {
        fprintf(stderr, "redis: %s\n", s->look->errstr);
        abort();
    }
    return reply;
}

static inline void redis_do(struct redis_server *s, const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    redisReply *reply = redisvCommand(s->look, format, ap);
    va_end(ap);
    if (reply == NULL || reply->type == REDIS_REPLY_ERROR) {
        fprintf(stderr, "redis: %s: %s\n", format, reply != NULL ? reply->str : s->look->errstr);
        abort();
    }
    freeReplyObject(reply);
}

/* An integer reply, or a string that holds one; -999 where there is nothing. */
static inline long long redis_number(struct redis_server *s, const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    redisReply *reply = redisvCommand(s->look, format, ap);
    va_end(ap);
    if (reply == NULL)
        abort();
    long long n = reply->type == REDIS_REPLY_INTEGER  ? reply->integer
                  : reply->type == REDIS_REPLY_STRING ? strtoll(reply->str, NULL, 10)
                                                      : -999;
    freeReplyObject(reply);
    return n;
}

/* How many keys have no lifetime; each is named. */
static inline int redis_immortal_keys(struct redis_server *s)
{
    int found = 0;
    redisReply *keys = redis_ask(s, "KEYS *");
    for (size_t i = 0; i < keys->elements; i++) {
        if (redis_number(s, "PTTL %b", keys->element[i]->str, (size_t)keys->element[i]->len) != -1)
            continue;
        fprintf(stderr, "no lifetime: %s\n", keys->element[i]->str);
        found++;
    }
    freeReplyObject(keys);
    return found;
}

#endif
