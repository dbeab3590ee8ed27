/* What the files of the admin listener share: master_http.c (listening, and what is read),
 * master_http_act.c (actions). Private to them. */
#ifndef TOLLGATE_MASTER_HTTP_H
#define TOLLGATE_MASTER_HTTP_H

#include "master.h"
#include "parse.h"
#include "stream.h"

struct http_client;

/* What a client waits for, which outlives it where it leaves. */
struct http_asked {
    struct http_client *client; /* NULL: it has gone */
};

struct http_client {
    struct http_client *next, **link;
    struct http *h;
    struct master *m;
    struct stream *stream;
    struct parser *parser;
    struct arena arena;
    struct request req;
    struct timer deadline;
    struct http_asked *asked; /* NULL: nothing */
};

/* Answers, and lets go of the client. field: header fields, each with its line end. */
void http_answer(struct http_client *c, int status, const char *type, const char *field,
                 struct slice body);
void http_client_free(struct http_client *c);
/* True where the request is for an action: it is answered, now or later. */
bool http_act(struct http_client *c);

#endif
