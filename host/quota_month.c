/* The UTC month by Redis's clock. That clock is estimated: ours plus the difference that its last
 * reply showed. An estimate may be wrong around midnight; the script then says so and is asked
 * again. */
#include "quota_internal.h"

enum { DAY_MS = 86400000 };

/* Days since 1970-01-01 of the first of a month; after Howard Hinnant's days_from_civil. */
static int64_t days_of(int64_t year, int month)
{
    year -= month <= 2;
    int64_t era = (year >= 0 ? year : year - 399) / 400;
    int64_t of_era = year - era * 400;
    int64_t of_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5;
    return era * 146097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719468;
}

int quota_month(int64_t ms, int64_t *start, int64_t *end)
{
    int64_t days = ms / DAY_MS + 719468;
    int64_t era = days / 146097;
    int64_t of_era = days - era * 146097;
    int64_t year = (of_era - of_era / 1460 + of_era / 36524 - of_era / 146096) / 365;
    int64_t of_year = of_era - (365 * year + year / 4 - year / 100);
    int64_t shifted = (5 * of_year + 2) / 153; /* March is 0 */
    int month = (int)(shifted < 10 ? shifted + 3 : shifted - 9);
    year += era * 400 + (month <= 2);
    *start = days_of(year, month) * DAY_MS;
    *end = days_of(month == 12 ? year + 1 : year, month == 12 ? 1 : month + 1) * DAY_MS;
    return (int)(year * 100 + month);
}

int64_t quota_now(const struct quota *q)
{
    return loop_wall_ms() + q->clock_offset;
}

void quota_learn_clock(struct quota *q, int64_t redis_ms)
{
    q->clock_offset = redis_ms - loop_wall_ms();
}
