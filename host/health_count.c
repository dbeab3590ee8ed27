/* See health_count.h. */
#include "health_count.h"

static bool reached(uint32_t *count, uint32_t threshold)
{
    if (*count < threshold)
        (*count)++;
    return *count >= threshold;
}

bool health_count_result(struct health_count *c, const struct health_thresholds *t, bool good,
                         enum target_health *health)
{
    enum target_health next = good ? TARGET_HEALTH_UP : TARGET_HEALTH_DOWN;
    if (good)
        c->bad = 0;
    else
        c->good = 0;
    if (!reached(good ? &c->good : &c->bad, good ? t->healthy : t->unhealthy) || *health == next)
        return false;
    *health = next;
    return true;
}
