/* Certificates by name: the first lines are names, the last is what a client asks for. What is
 * found is what a plain search by RFC 6125's rule finds. */
#include "fuzz.h"
#include "sni.h"

enum { NAMES = 32 };

static struct slice without_dot(struct slice name)
{
    return (struct slice){ name.p, name.n - (name.n > 0 && name.p[name.n - 1] == '.') };
}

static int plain(const struct slice *names, int n, struct slice asked)
{
    asked = without_dot(asked);
    if (asked.n == 0 || asked.n > SNI_NAME_MAX)
        return -1;
    for (int i = 0; asked.p[0] != '*' && i < n; i++) {
        if (slice_ieq(without_dot(names[i]), asked))
            return i;
    }
    const char *dot = memchr(asked.p, '.', asked.n);
    if (dot == NULL || dot == asked.p)
        return -1;
    struct slice rest = { dot, (size_t)(asked.p + asked.n - dot) };
    for (int i = 0; i < n; i++) {
        struct slice name = without_dot(names[i]);
        if (name.n > 1 && name.n <= SNI_NAME_MAX && name.p[0] == '*' &&
            slice_ieq((struct slice){ name.p + 1, name.n - 1 }, rest))
            return i;
    }
    return -1;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    struct slice names[NAMES], rest = { (const char *)bytes, n };
    struct sni *s = sni_new();
    int count = 0;
    const char *lf;
    if (n > 0 && memchr(bytes, 0, n) != NULL) /* no name of a certificate or of SNI has one */
        rest.n = 0;
    while (count < NAMES && rest.n > 0 && (lf = memchr(rest.p, '\n', rest.n)) != NULL) {
        names[count] = (struct slice){ rest.p, (size_t)(lf - rest.p) };
        sni_add(s, names[count], (unsigned)count);
        rest.n -= names[count].n + 1;
        rest.p = lf + 1;
        count++;
    }
    CHECK(sni_find(s, rest) == plain(names, count, rest));
    sni_free(s);
    return 0;
}
