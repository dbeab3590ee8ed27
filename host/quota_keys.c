/* Names of keys in Redis, and the table of API keys in use. A key stays for a while after its last
 * request (names are made once, and a heal is remembered); beyond QUOTA_IDLE_KEYS the one that
 * rested longest goes. */
#include "quota_internal.h"

#include <stdio.h>

#include "mem.h"
#include "redis_key.h"

/* --- names --- */

static void put_key_id(struct buf *out, const char *prefix, struct slice id, bool hash_tags)
{
    buf_add_text(out, prefix);
    redis_key_add_tag(out, id, hash_tags);
}

void quota_key_rps(struct buf *out, struct slice key_id, bool hash_tags)
{
    put_key_id(out, "q:rps:", key_id, hash_tags);
}

void quota_key_conc(struct buf *out, struct slice key_id, bool hash_tags)
{
    put_key_id(out, "q:conc:", key_id, hash_tags);
}

void quota_key_tokens(struct buf *out, struct slice key_id, int64_t now_ms, bool hash_tags)
{
    int64_t start, end;
    put_key_id(out, "q:tokens:", key_id, hash_tags);
    buf_printf(out, ":%06d", quota_month(now_ms, &start, &end));
}

/* With hash tags a request id begins with the key's tag, whose braces must stay as they are. */
void quota_name_reserved(struct buf *out, const struct quota_key *k, struct slice member)
{
    buf_add_text(out, "q:reserved:");
    if (k->tag.n > 0 && slice_starts(member, k->tag)) {
        buf_add_slice(out, k->tag);
        member.p += k->tag.n;
        member.n -= k->tag.n;
    }
    redis_key_add(out, member);
}

/* --- the table --- */

static unsigned hash_of(const struct quota *q, struct slice id)
{
    unsigned h = 2166136261u ^ q->seed; /* FNV-1a */
    for (size_t i = 0; i < id.n; i++)
        h = (h ^ (unsigned char)id.p[i]) * 16777619u;
    return h ^ h >> 15;
}

static void grow(struct quota *q)
{
    unsigned n = q->nbuckets == 0 ? 256 : q->nbuckets * 2;
    struct quota_key **buckets = mem_zalloc(n * sizeof *buckets);
    for (unsigned i = 0; i < q->nbuckets; i++) {
        for (struct quota_key *k = q->buckets[i], *next; k != NULL; k = next) {
            next = k->next;
            k->next = buckets[k->hash & (n - 1)];
            buckets[k->hash & (n - 1)] = k;
        }
    }
    mem_free(q->buckets);
    q->buckets = buckets;
    q->nbuckets = n;
}

static void idle_remove(struct quota *q, struct quota_key *k)
{
    *(k->idle_prev != NULL ? &k->idle_prev->idle_next : &q->idle_first) = k->idle_next;
    *(k->idle_next != NULL ? &k->idle_next->idle_prev : &q->idle_last) = k->idle_prev;
    k->idle_prev = k->idle_next = NULL;
    q->nidle--;
}

static void idle_add(struct quota *q, struct quota_key *k)
{
    k->idle_prev = q->idle_last;
    k->idle_next = NULL;
    *(q->idle_last != NULL ? &q->idle_last->idle_next : &q->idle_first) = k;
    q->idle_last = k;
    q->nidle++;
}

static void key_free(struct quota *q, struct quota_key *k)
{
    struct quota_key **at = &q->buckets[k->hash & (q->nbuckets - 1)];
    while (*at != k)
        at = &(*at)->next;
    *at = k->next;
    q->nkeys--;
    mem_free(k);
}

/* Its names stand one behind the other in k->text. */
static struct quota_key *key_new(struct quota *q, struct slice id)
{
    struct buf b;
    size_t end[5];
    buf_init(&b);
    buf_add_slice(&b, id);
    end[0] = b.n;
    quota_key_rps(&b, id, q->hash_tags);
    end[1] = b.n;
    quota_key_conc(&b, id, q->hash_tags);
    end[2] = b.n;
    put_key_id(&b, "q:tokens:", id, q->hash_tags);
    end[3] = b.n;
    if (q->hash_tags) {
        put_key_id(&b, "", id, true);
        buf_add_text(&b, ".");
    }
    end[4] = b.n;
    struct quota_key *k = mem_zalloc(sizeof *k + b.n);
    memcpy(k->text, b.p, b.n);
    buf_deinit(&b);
    k->id = (struct slice){ k->text, end[0] };
    k->rps = (struct slice){ k->text + end[0], end[1] - end[0] };
    k->conc = (struct slice){ k->text + end[1], end[2] - end[1] };
    k->tokens = (struct slice){ k->text + end[2], end[3] - end[2] };
    k->tag = (struct slice){ k->text + end[3], end[4] - end[3] };
    quota_list_init(&k->waits);
    quota_list_init(&k->settles);
    return k;
}

struct quota_key *quota_key_get(struct quota *q, struct slice id)
{
    unsigned hash = hash_of(q, id);
    if (q->nkeys >= q->nbuckets)
        grow(q);
    struct quota_key **bucket = &q->buckets[hash & (q->nbuckets - 1)], *k = *bucket;
    while (k != NULL && (k->hash != hash || !slice_eq(k->id, id)))
        k = k->next;
    if (k == NULL) {
        k = key_new(q, id);
        k->hash = hash;
        k->next = *bucket;
        *bucket = k;
        q->nkeys++;
    } else if (k->refs == 0) {
        idle_remove(q, k);
    }
    k->refs++;
    return k;
}

void quota_key_put(struct quota *q, struct quota_key *k)
{
    if (--k->refs > 0)
        return;
    idle_add(q, k);
    while (q->nidle > QUOTA_IDLE_KEYS) {
        struct quota_key *oldest = q->idle_first;
        idle_remove(q, oldest);
        key_free(q, oldest);
    }
}

void quota_key_dirty(struct quota *q, struct quota_key *k)
{
    loop_defer(q->loop, &q->collect, LOOP_COLLECT);
    if (k->dirty)
        return;
    k->dirty = true;
    k->refs++;
    k->dirty_next = NULL;
    *q->dirty_last = k;
    q->dirty_last = &k->dirty_next;
}

void quota_keys_free(struct quota *q)
{
    for (unsigned i = 0; i < q->nbuckets; i++) {
        for (struct quota_key *k = q->buckets[i], *next; k != NULL; k = next) {
            next = k->next;
            for (struct quota_entry *e; (e = quota_list_pop(&k->waits)) != NULL;)
                quota_entry_free(e);
            for (struct quota_entry *e; (e = quota_list_pop(&k->settles)) != NULL;)
                quota_entry_free(e);
            mem_free(k);
        }
    }
    mem_free(q->buckets);
}
