/* See counters.h. */
#include "counters.h"

#include <inttypes.h>

void counters_write(const struct counters *c, struct buf *out)
{
#define X(field, name, help)                                                                       \
    buf_printf(out,                                                                                \
               "# HELP tollgate_" name " " help "\n# TYPE tollgate_" name " counter\n"             \
               "tollgate_" name " %" PRIu64 "\n",                                                  \
               c->field);
    COUNTERS(X)
#undef X
}
