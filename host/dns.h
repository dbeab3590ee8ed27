/* Questions to DNS by c-ares, on the loop: one name and one family of addresses each. It keeps no
 * answers; `resolve` does. */
#ifndef TOLLGATE_DNS_H
#define TOLLGATE_DNS_H

#include "cidr.h"
#include "loop.h"

struct dns;

enum { DNS_MAX = 64 }; /* addresses of one family that are taken from an answer */

struct dns_options {
    const char *servers; /* "127.0.0.1:53,[::1]:53"; NULL: those of the system. Borrowed. */
    uint64_t try_ms;     /* the first wait for an answer; it doubles with each further one */
    int tries;           /* of each server */
};

enum dns_status {
    DNS_FOUND,
    DNS_NONE,   /* the name, or this family of it, is not there */
    DNS_FAILED, /* nobody knows */
    DNS_STOPPED /* dns_free came first */
};

struct dns_answer {
    enum dns_status status;
    int err;         /* UV_E* where there are no addresses */
    const char *why; /* static text of it */
    uint32_t ttl;    /* seconds */
    unsigned n;
    struct ip v[DNS_MAX];
};

/* Embedded in its owner, and alive until cb has run. */
struct dns_query {
    struct dns *d; /* private, as is family */
    int family;
    void (*cb)(struct dns_query *q, const struct dns_answer *a);
};

/* NULL where c-ares cannot start or a server is not one; *why is static text then. */
struct dns *dns_new(struct loop *l, const struct dns_options *o, const char **why);
/* Queries under way end with DNS_STOPPED. Not to be called out of a query's callback. */
void dns_free(struct dns *d);

/* Asks; AF_INET or AF_INET6. cb runs once, perhaps before this returns. */
void dns_ask(struct dns *d, const char *host, int family, struct dns_query *q);
/* What the hosts file says of a name, read now. False: nothing. */
bool dns_hosts(struct dns *d, const char *host, int family, struct dns_answer *out);
/* The system's resolver has been changed since; a new dns would know. */
bool dns_outdated(const struct dns *d);

#endif
