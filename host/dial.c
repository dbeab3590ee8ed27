/* See dial.h. An attempt that fails makes room for the next one at once; one that does not answer
 * is not waited for longer than the stagger, but goes on beside its successors. */
#include "dial.h"

#include <string.h>

#include "container.h"
#include "mem.h"

enum { DIAL_STAGGER_MS = 250 }; /* RFC 8305, section 8 */

struct attempt {
    struct dial *dial;
    struct stream *stream; /* NULL: not begun, or over */
    bool passed_over;      /* it did not answer within the stagger */
};

struct dial {
    struct loop *loop;
    struct resolve *resolve;
    struct dial_to to;
    struct resolve_wait *lookup;
    struct timer stagger, deadline;
    struct deferred fault; /* told later: there was nothing to try */
    uint64_t until;
    unsigned begun, open;
    int err;
    void (*cb)(void *arg, struct stream *s, const struct address *a, int err);
    void *arg;
    struct addresses addresses;
    struct attempt attempts[ADDRESSES_MAX];
};

static void dial_free(struct dial *d)
{
    if (d->lookup != NULL)
        resolve_cancel(d->lookup);
    for (unsigned i = 0; i < d->begun; i++) {
        if (d->attempts[i].stream != NULL)
            stream_close(d->attempts[i].stream);
    }
    timer_deinit(d->loop, &d->stagger);
    timer_deinit(d->loop, &d->deadline);
    loop_undefer(d->loop, &d->fault);
    mem_free(d);
}

void dial_cancel(struct dial *d)
{
    dial_free(d);
}

static void end(struct dial *d, struct stream *s, const struct address *a, int err)
{
    void (*cb)(void *, struct stream *, const struct address *, int) = d->cb;
    void *arg = d->arg;
    struct address copy;
    if (a != NULL)
        copy = *a;
    dial_free(d);
    cb(arg, s, a != NULL ? &copy : NULL, err);
}

static void remember(struct dial *d, unsigned i, bool worked)
{
    if (d->resolve != NULL && d->addresses.n > 1)
        resolve_tell(d->resolve, d->to.host, &d->addresses.v[i], worked);
}

/* The error to tell is that of the first choice, unless that one has no route. */
static void remember_error(struct dial *d, int err)
{
    bool no_route = err == UV_ENETUNREACH || err == UV_EHOSTUNREACH || err == UV_EADDRNOTAVAIL ||
                    err == UV_EAFNOSUPPORT;
    bool had_none = d->err == UV_ENETUNREACH || d->err == UV_EHOSTUNREACH ||
                    d->err == UV_EADDRNOTAVAIL || d->err == UV_EAFNOSUPPORT;
    if (d->err == 0 || (had_none && !no_route))
        d->err = err;
}

static void try_next(struct dial *d);

static void on_connect(void *arg, int err)
{
    struct attempt *a = arg;
    struct dial *d = a->dial;
    unsigned i = (unsigned)(a - d->attempts);
    struct stream *s = a->stream;
    a->stream = NULL;
    d->open--;
    if (err == 0) {
        for (unsigned k = 0; k < d->begun; k++) {
            if (d->attempts[k].passed_over && k != i)
                remember(d, k, false);
        }
        remember(d, i, true);
        end(d, s, &d->addresses.v[i], 0);
        return;
    }
    stream_close(s);
    a->passed_over = false;
    remember(d, i, false);
    remember_error(d, err);
    if (d->begun < d->addresses.n)
        try_next(d);
    else if (d->open == 0)
        end(d, NULL, NULL, d->err);
}

static void try_next(struct dial *d)
{
    uint64_t now = loop_now(d->loop), left = d->until > now ? d->until - now : 1;
    unsigned i = d->begun++;
    d->attempts[i] = (struct attempt){ .dial = d };
    /* Our own deadline comes first; theirs is behind it. */
    d->attempts[i].stream =
        stream_dial(d->loop, &d->addresses.v[i], left + 1, on_connect, &d->attempts[i]);
    d->open++;
    if (d->begun < d->addresses.n)
        timer_set(d->loop, &d->stagger, DIAL_STAGGER_MS);
    else
        timer_stop(&d->stagger);
}

static void on_stagger(struct timer *t)
{
    struct dial *d = CONTAINER(t, struct dial, stagger);
    for (unsigned i = 0; i < d->begun; i++)
        d->attempts[i].passed_over = d->attempts[i].stream != NULL;
    try_next(d);
}

static void on_deadline(struct timer *t)
{
    struct dial *d = CONTAINER(t, struct dial, deadline);
    for (unsigned i = 0; i < d->begun; i++) {
        if (d->attempts[i].stream != NULL)
            remember(d, i, false);
    }
    end(d, NULL, NULL, UV_ETIMEDOUT);
}

static void on_addresses(void *arg, const struct addresses *found, int err)
{
    struct dial *d = arg;
    d->lookup = NULL;
    if (err != 0) {
        end(d, NULL, NULL, err);
        return;
    }
    d->addresses = *found;
    try_next(d);
}

static void on_fault(struct deferred *f)
{
    struct dial *d = CONTAINER(f, struct dial, fault);
    end(d, NULL, NULL, d->err);
}

static void fail_later(struct dial *d, int err)
{
    d->err = err;
    loop_defer(d->loop, &d->fault, LOOP_COLLECT);
}

static void begin(struct dial *d)
{
    const struct dial_to *to = &d->to;
    if (to->path != NULL && to->path[0] != '\0') {
        int err = address_of_path(to->path, &d->addresses.v[0]);
        d->addresses.n = 1;
        if (err == 0)
            try_next(d);
        else
            fail_later(d, err);
    } else if (d->resolve == NULL ? addresses_known(to->host, to->port, &d->addresses)
                                  : resolve_now(d->resolve, to->host, to->port, &d->addresses)) {
        try_next(d);
    } else if (d->resolve == NULL) {
        fail_later(d, UV_EAI_NONAME);
    } else {
        d->lookup = resolve_lookup(d->resolve, to->host, to->port, on_addresses, d);
    }
}

struct dial *dial_start(struct loop *l, struct resolve *r, const struct dial_to *to,
                        uint64_t timeout_ms,
                        void (*cb)(void *arg, struct stream *s, const struct address *a, int err),
                        void *arg)
{
    struct dial *d = mem_alloc(sizeof *d);
    memset(d, 0, offsetof(struct dial, addresses));
    d->loop = l;
    d->resolve = r;
    d->to = *to;
    d->cb = cb;
    d->arg = arg;
    d->stagger.cb = on_stagger;
    d->deadline.cb = on_deadline;
    d->fault.run = on_fault;
    d->until = loop_now(l) + timeout_ms;
    timer_set(l, &d->deadline, timeout_ms);
    begin(d);
    return d;
}
