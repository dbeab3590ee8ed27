/* Key files: refused with a place and a reason, or each record is found by its id and stands within
 * the bounds that its fields have. */
#include "fuzz.h"
#include "keystore.h"

static void check_record(const struct keystore *ks, size_t i)
{
    const struct key_record *r = keystore_at(ks, i);
    CHECK(r->id.n > 0 && r->id.n <= KEY_ID_MAX && r->line > 0);
    CHECK(keystore_index(ks, r) == i && keystore_find_id(ks, r->id) == r);
    CHECK(r->rps >= 0 && (r->burst == 0 || r->burst >= 1));
    CHECK(r->monthly_tokens >= -1 && r->monthly_tokens < (INT64_C(1) << 53));
    CHECK(r->concurrency >= 0 && r->concurrency < (INT64_C(1) << 53));
    CHECK(r->routes != NULL || r->nroutes == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    struct buf fault;
    buf_init(&fault);
    struct keystore *ks = keystore_parse((struct slice){ (const char *)bytes, n }, "keys", &fault);
    CHECK((ks == NULL) == (fault.n > 0));
    CHECK(ks != NULL || strncmp(fault.p, "keys:", 5) == 0);
    for (size_t i = 0; ks != NULL && i < keystore_count(ks); i++)
        check_record(ks, i);
    if (ks != NULL)
        keystore_find(ks, (struct slice){ (const char *)bytes, n });
    keystore_free(ks);
    buf_deinit(&fault);
    return 0;
}
