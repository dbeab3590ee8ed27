/* See fetch.h: redirects (RFC 9110, section 15.4). Off unless asked for. Credentials that were
 * meant for one origin do not go to another. */
#include "fetch_internal.h"

bool fetch_redirects(const struct fetch *f)
{
    if (f->options.redirects == 0 || headers_find(&f->res.headers, SLICE("location"), 0) < 0)
        return false;
    switch (f->res.status) {
    case 301:
    case 302:
    case 303:
    case 307:
    case 308: return true;
    default: return false;
    }
}

/* After a 303 anything but HEAD becomes GET (section 15.4.4), and after a 301 or 302 POST does, as
 * all clients have it (sections 15.4.2 and 15.4.3). */
static void change_method(struct fetch *f)
{
    static const char *const of_body[] = { "content-type", "content-encoding", "content-language",
                                           "content-location", "digest" };
    bool head = slice_eq(f->req.method, SLICE("HEAD")), get = slice_eq(f->req.method, SLICE("GET"));
    bool post = slice_eq(f->req.method, SLICE("POST"));
    bool changes = f->res.status == 303 ? !head && !get : f->res.status < 303 && post;
    if (!changes)
        return;
    f->req.method = SLICE("GET");
    f->req.framing = FRAMING_NONE;
    f->req_body = (struct slice){ NULL, 0 };
    for (size_t i = 0; i < sizeof of_body / sizeof of_body[0]; i++)
        headers_remove(&f->req.headers, slice_of(of_body[i]));
}

static void drop_credentials(struct fetch *f)
{
    static const char *const secrets[] = { "authorization",  "proxy-authorization",
                                           "cookie",         "cookie2",
                                           "x-api-key",      "api-key",
                                           "x-goog-api-key", "host" };
    for (size_t i = 0; i < sizeof secrets / sizeof secrets[0]; i++)
        headers_remove(&f->req.headers, slice_of(secrets[i]));
}

void fetch_follow(struct fetch *f)
{
    struct fetch_url to;
    struct slice location = headers_get(&f->res.headers, SLICE("location"));
    const char *wrong = fetch_url_resolve(&f->arena, &f->url, location, &to);
    fetch_let_go(f, true);
    if (f->redirects-- == 0) {
        fetch_fail(f, FETCH_TOO_MANY_REDIRECTS, "the redirects do not end");
        return;
    }
    if (wrong != NULL) {
        fetch_fail(f, FETCH_MALFORMED, wrong);
        return;
    }
    change_method(f);
    if (!fetch_url_same_origin(&f->url, &to))
        drop_credentials(f);
    fetch_set_url(f, &to);
    f->retried = false;
    fetch_connect(f, false);
}
