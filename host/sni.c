/* See sni.h. A sorted list: names are few, and all known before the first is asked for. */
#include "sni.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "mem.h"

struct entry {
    char *name;
    unsigned which, order;
};

struct sni {
    struct entry *v;
    unsigned n, cap;
    bool sorted;
};

struct sni *sni_new(void)
{
    return mem_zalloc(sizeof(struct sni));
}

void sni_free(struct sni *s)
{
    if (s == NULL)
        return;
    for (unsigned i = 0; i < s->n; i++)
        mem_free(s->v[i].name);
    mem_free(s->v);
    mem_free(s);
}

/* In lower case, without a final dot. False where it is no name. */
static bool fold(struct slice name, char out[SNI_NAME_MAX + 1])
{
    if (name.n > 0 && name.p[name.n - 1] == '.')
        name.n--;
    if (name.n == 0 || name.n > SNI_NAME_MAX || memchr(name.p, '\0', name.n) != NULL)
        return false;
    for (size_t i = 0; i < name.n; i++)
        out[i] = name.p[i] >= 'A' && name.p[i] <= 'Z' ? (char)(name.p[i] + 32) : name.p[i];
    out[name.n] = '\0';
    return true;
}

void sni_add(struct sni *s, struct slice name, unsigned which)
{
    char folded[SNI_NAME_MAX + 1];
    if (!fold(name, folded))
        return;
    if (s->n == s->cap) {
        s->cap = s->cap == 0 ? 8 : s->cap * 2;
        s->v = mem_realloc(s->v, s->cap * sizeof *s->v);
    }
    s->v[s->n] = (struct entry){ mem_strdup(folded), which, s->n };
    s->n++;
    s->sorted = false;
}

static int compare(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    int by_name = strcmp(x->name, y->name);
    return by_name != 0 ? by_name : x->order < y->order ? -1 : 1;
}

static int find(const struct sni *s, const char *name)
{
    unsigned from = 0, to = s->n; /* the first that is not below the name */
    while (from < to) {
        unsigned middle = from + (to - from) / 2;
        if (strcmp(s->v[middle].name, name) < 0)
            from = middle + 1;
        else
            to = middle;
    }
    return from < s->n && strcmp(s->v[from].name, name) == 0 ? (int)s->v[from].which : -1;
}

int sni_find(struct sni *s, struct slice name)
{
    char folded[SNI_NAME_MAX + 1];
    if (!fold(name, folded))
        return -1;
    if (!s->sorted && s->n > 0)
        qsort(s->v, s->n, sizeof *s->v, compare);
    s->sorted = true;
    int found = folded[0] != '*' ? find(s, folded) : -1;
    char *dot = strchr(folded, '.');
    if (found >= 0 || dot == NULL || dot == folded)
        return found;
    dot[-1] = '*';
    return find(s, dot - 1);
}
