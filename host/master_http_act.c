/* See master_http.h: POST /reload, /upgrade and /reopen, for who sends the token of the
 * configuration as a bearer (RFC 6750). Without a token in the configuration there are no such
 * paths. No CORS field is ever sent, so no web page can ask with that field of another site. The
 * master has the token's digest alone, and compares digests in constant time. */
#include <openssl/crypto.h>
#include <openssl/evp.h>

#include "encoding.h"
#include "log.h"
#include "master_http.h"
#include "mem.h"

static const char *const paths[] = { "/reload", "/upgrade", "/reopen" };

static bool authorized(const struct http_client *c, const char *digest)
{
    const struct slice scheme = SLICE("bearer ");
    struct slice field = headers_get(&c->req.headers, SLICE("authorization"));
    unsigned char sum[32];
    char hex[64];
    if (field.n <= scheme.n || !slice_ieq((struct slice){ field.p, scheme.n }, scheme))
        return false;
    struct slice token = slice_trim((struct slice){ field.p + scheme.n, field.n - scheme.n });
    EVP_Digest(token.p, token.n, sum, NULL, EVP_sha256(), NULL);
    encoding_hex((struct slice){ (const char *)sum, sizeof sum }, hex);
    return CRYPTO_memcmp(hex, digest, sizeof hex) == 0;
}

static void on_acted(void *arg, bool ok, struct slice text)
{
    struct http_asked *asked = arg;
    struct http_client *c = asked->client;
    mem_free(asked);
    if (c == NULL)
        return;
    c->asked = NULL;
    while (text.n > 0 && text.p[text.n - 1] == '\n')
        text.n--;
    http_answer(c, ok ? 200 : 409, "text/plain", "",
                arena_printf(&c->arena, "%.*s\n", (int)text.n, text.p));
}

/* From now on the action's own limits count; the client may leave. */
static void act(struct http_client *c, struct slice verb)
{
    struct http_asked *asked = mem_zalloc(sizeof *asked);
    asked->client = c;
    c->asked = asked;
    timer_stop(&c->deadline);
    log_info("admin: %.*s, asked for over HTTP", (int)verb.n, verb.p);
    master_act(c->m, verb, on_acted, asked); /* c may be gone when it comes back */
}

bool http_act(struct http_client *c)
{
    const char *digest = plan_text(c->m->plan, "admin.token");
    struct slice path = c->req.path;
    bool known = false;
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
        known = known || slice_eq(path, slice_of(paths[i]));
    if (!known || digest == NULL)
        return false;
    if (!slice_eq(c->req.method, SLICE("POST"))) {
        http_answer(c, 405, "text/plain", "allow: POST\r\n", SLICE("this is an action: POST\n"));
    } else if (!authorized(c, digest)) {
        log_warn("admin: %.*s was refused: it came without the token", (int)path.n - 1, path.p + 1);
        http_answer(c, 401, "text/plain", "www-authenticate: Bearer\r\n",
                    SLICE("this takes the token of the configuration: Authorization: Bearer\n"));
    } else {
        act(c, (struct slice){ path.p + 1, path.n - 1 });
    }
    return true;
}
