/* See loop.h. The deferred queues run from libuv's check phase (right behind I/O) and again from
 * prepare (before it blocks), so nothing deferred waits for a poll. The timer heap has one uv_timer
 * for its earliest key. */
#include "loop.h"

#include <string.h>
#include <time.h>

#include "log.h"
#include "mem.h"

enum { LOOP_ROUNDS = 16 }; /* of deferred work before I/O gets a look in */

/* --- the end of a turn --- */

static bool run_order(struct loop *l, enum loop_order order)
{
    struct deferred *d = l->queue[order];
    if (d == NULL)
        return false;
    /* Take the list as it is: what these queue again belongs to the next round. */
    struct deferred *batch = d, **batch_tail = l->tail[order];
    l->queue[order] = NULL;
    l->tail[order] = &l->queue[order];
    batch->link = &batch;
    *batch_tail = NULL;
    while (batch != NULL) {
        d = batch;
        batch = d->next;
        if (batch != NULL)
            batch->link = &batch;
        d->link = NULL;
        d->run(d);
    }
    return true;
}

static void on_idle(uv_idle_t *h)
{
    (void)h; /* only keeps the next poll from blocking */
}

static void run_deferred(struct loop *l)
{
    for (int round = 0; round < LOOP_ROUNDS; round++) {
        bool any = false;
        for (int o = 0; o < LOOP_ORDERS; o++)
            any |= run_order(l, (enum loop_order)o);
        if (!any) {
            uv_idle_stop(&l->idle);
            return;
        }
    }
    uv_idle_start(&l->idle, on_idle);
}

static void on_prepare(uv_prepare_t *h)
{
    run_deferred(h->data);
}

static void on_check(uv_check_t *h)
{
    run_deferred(h->data);
}

void loop_defer(struct loop *l, struct deferred *d, enum loop_order order)
{
    if (d->link != NULL)
        return;
    d->next = NULL;
    d->link = l->tail[order];
    *l->tail[order] = d;
    l->tail[order] = &d->next;
}

void loop_undefer(struct loop *l, struct deferred *d)
{
    if (d->link == NULL)
        return;
    *d->link = d->next;
    if (d->next != NULL) {
        d->next->link = d->link;
    } else {
        for (int o = 0; o < LOOP_ORDERS; o++) {
            if (l->tail[o] == &d->next)
                l->tail[o] = d->link;
        }
    }
    d->link = NULL;
}

/* --- timers --- */

static void heap_put(struct loop *l, uint32_t pos, struct timer *t)
{
    l->heap[pos] = t;
    t->pos = pos;
}

static void heap_up(struct loop *l, uint32_t pos, struct timer *t)
{
    while (pos > 1 && l->heap[pos / 2]->key > t->key) {
        heap_put(l, pos, l->heap[pos / 2]);
        pos /= 2;
    }
    heap_put(l, pos, t);
}

static void heap_down(struct loop *l, uint32_t pos, struct timer *t)
{
    for (;;) {
        uint32_t child = pos * 2;
        if (child > l->timers)
            break;
        if (child < l->timers && l->heap[child + 1]->key < l->heap[child]->key)
            child++;
        if (l->heap[child]->key >= t->key)
            break;
        heap_put(l, pos, l->heap[child]);
        pos = child;
    }
    heap_put(l, pos, t);
}

static void heap_insert(struct loop *l, struct timer *t)
{
    if (l->timers + 2 > l->heap_cap) {
        l->heap_cap = l->heap_cap == 0 ? 64 : l->heap_cap * 2;
        l->heap = mem_realloc(l->heap, l->heap_cap * sizeof *l->heap);
    }
    l->timers++;
    heap_up(l, l->timers, t);
}

static void heap_remove(struct loop *l, struct timer *t)
{
    uint32_t pos = t->pos;
    struct timer *last = l->heap[l->timers--];
    t->pos = 0;
    if (last == t)
        return;
    if (pos > 1 && l->heap[pos / 2]->key > last->key)
        heap_up(l, pos, last);
    else
        heap_down(l, pos, last);
}

static void on_alarm(uv_timer_t *h);

static void arm(struct loop *l)
{
    if (l->timers == 0) {
        l->alarm_at = 0;
        uv_timer_stop(&l->alarm);
        return;
    }
    uint64_t at = l->heap[1]->key;
    if (l->alarm_at != 0 && l->alarm_at <= at)
        return; /* wakes early enough; looked at again then */
    uint64_t now = uv_now(&l->uv);
    l->alarm_at = at;
    uv_timer_start(&l->alarm, on_alarm, at > now ? at - now : 0, 0);
}

static void on_alarm(uv_timer_t *h)
{
    struct loop *l = h->data;
    uint64_t now = uv_now(&l->uv);
    l->alarm_at = 0;
    while (l->timers > 0 && l->heap[1]->key <= now) {
        struct timer *t = l->heap[1];
        heap_remove(l, t);
        if (t->at == 0)
            continue;
        if (t->at > now) {
            t->key = t->at;
            heap_insert(l, t);
            continue;
        }
        t->at = 0;
        t->cb(t);
    }
    arm(l);
}

void timer_set(struct loop *l, struct timer *t, uint64_t ms)
{
    /* From now, not from the start of this turn: after a long turn the difference would be a
     * deadline missed before anything was sent. One millisecond at least: a timer set from its own
     * callback must not run in the same pass. */
    uint64_t turn = uv_now(&l->uv), now = uv_hrtime() / 1000000;
    t->at = (now > turn ? now : turn) + (ms > 0 ? ms : 1);
    if (t->pos != 0) {
        if (t->key <= t->at)
            return;
        heap_remove(l, t);
    }
    t->key = t->at;
    heap_insert(l, t);
    arm(l);
}

void timer_stop(struct timer *t)
{
    t->at = 0;
}

void timer_deinit(struct loop *l, struct timer *t)
{
    t->at = 0;
    if (t->pos != 0)
        heap_remove(l, t);
}

/* --- the loop --- */

int loop_init(struct loop *l)
{
    memset(l, 0, sizeof *l);
    int err = uv_loop_init(&l->uv);
    if (err != 0)
        return err;
    l->uv.data = l;
    l->read_buf = mem_alloc(LOOP_READ_SIZE);
    for (int o = 0; o < LOOP_ORDERS; o++)
        l->tail[o] = &l->queue[o];
    uv_prepare_init(&l->uv, &l->prepare);
    uv_check_init(&l->uv, &l->check);
    uv_idle_init(&l->uv, &l->idle);
    uv_timer_init(&l->uv, &l->alarm);
    l->prepare.data = l->check.data = l->idle.data = l->alarm.data = l;
    uv_prepare_start(&l->prepare, on_prepare);
    uv_check_start(&l->check, on_check);
    uv_unref((uv_handle_t *)&l->prepare);
    uv_unref((uv_handle_t *)&l->check);
    uv_unref((uv_handle_t *)&l->alarm);
    return 0;
}

void loop_run(struct loop *l)
{
    uv_run(&l->uv, UV_RUN_DEFAULT);
}

void loop_stop(struct loop *l)
{
    uv_stop(&l->uv);
}

struct leak_walk {
    const struct loop *l;
    int left;
};

static void on_leak(uv_handle_t *h, void *arg)
{
    struct leak_walk *w = arg;
    if (uv_is_closing(h))
        return;
    w->left++;
    log_error("leak: a %s handle is still open", uv_handle_type_name(h->type));
}

static void on_walk_close(uv_handle_t *h, void *arg)
{
    (void)arg;
    if (!uv_is_closing(h))
        uv_close(h, NULL);
}

int loop_deinit(struct loop *l)
{
    run_deferred(l);
    struct leak_walk w = { l, 0 };
    uv_close((uv_handle_t *)&l->prepare, NULL);
    uv_close((uv_handle_t *)&l->check, NULL);
    uv_close((uv_handle_t *)&l->idle, NULL);
    uv_close((uv_handle_t *)&l->alarm, NULL);
    uv_walk(&l->uv, on_leak, &w);
    for (uint32_t i = 1; i <= l->timers; i++) {
        if (l->heap[i]->at != 0) {
            w.left++;
            log_error("leak: a timer is still set");
        }
    }
    if (w.left > 0)
        uv_walk(&l->uv, on_walk_close, NULL);
    uv_run(&l->uv, UV_RUN_DEFAULT);
    uv_loop_close(&l->uv);
    mem_free(l->heap);
    mem_free(l->read_buf);
    mem_free(l->tls_in);
    buf_deinit(&l->tls_out);
    return w.left;
}

uint64_t loop_now(const struct loop *l)
{
    return uv_now(&l->uv);
}

int64_t loop_wall_ms(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_REALTIME, &ts);
    return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}
