/* Private to exchange_origin.c and exchange_read.c. */
#ifndef TOLLGATE_EXCHANGE_ORIGIN_H
#define TOLLGATE_EXCHANGE_ORIGIN_H

#include "exchange.h"

/* exchange.let_go: what becomes of the connection behind the parser's callbacks. */
enum { LET_GO_NOT, LET_GO_DROP, LET_GO_KEEP };

/* What went wrong: for plugins and the retry policy, and what the client is told where nothing
 * follows. */
struct exchange_failure {
    const char *error;
    int status;
    const char *code, *message;
};

extern const struct exchange_failure exchange_failure_closed, exchange_failure_bad_answer,
    exchange_failure_bad_tls, exchange_failure_too_large, exchange_failure_overloaded;

/* exchange_origin.c */
void exchange_origin_failed(struct exchange *x, const struct exchange_failure *f,
                            const char *detail);
/* The origin has so long for what is next. */
void exchange_origin_watch(struct exchange *x, uint64_t ms);
/* A request's first attempt has the time that its target is given; later ones no more than what is
 * left for all. */
uint64_t exchange_origin_within(const struct exchange *x, uint64_t ms);
/* The same request once more, on a new connection. */
void exchange_origin_again(struct exchange *x);

/* exchange_read.c: what a connection on loan and its parser call. */
extern const struct parse_events exchange_parse_events;
extern const struct stream_events exchange_origin_events;

#endif
