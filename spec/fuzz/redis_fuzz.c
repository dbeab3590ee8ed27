/* Replies of Redis, out of hiredis' reader with the host's bound on arrays: any split gives the
 * same replies, and what a reply means can be told of every one. */
#include "fuzz.h"
#include "rds_internal.h"

enum { REPLIES = 64 }; /* of one input */

#if HIREDIS_MAJOR < 1
typedef int element_count;
#else
typedef size_t element_count;
#endif

static void *(*create_array)(const redisReadTask *, element_count);

static void *create_bounded(const redisReadTask *task, element_count elements)
{
    return (long long)elements > 4096 ? NULL : create_array(task, elements);
}

static void say(struct buf *out, const redisReply *reply)
{
    buf_printf(out, "%d", reply->type);
    if (reply->type == REDIS_REPLY_INTEGER)
        buf_printf(out, " %lld", reply->integer);
    else if (reply->type == REDIS_REPLY_ARRAY) {
        for (size_t i = 0; i < reply->elements; i++)
            say(out, reply->element[i]);
    } else if (reply->str != NULL) {
        buf_add(out, reply->str, (size_t)reply->len);
    }
    buf_add_text(out, "\n");
}

static void meaning(struct buf *out, const redisReply *reply)
{
    static struct rds r;
    bool unfit = false, not_run = false;
    if (reply->type == REDIS_REPLY_ERROR) {
        unfit = rds_is_unfit(reply);
        not_run = rds_not_run(reply);
    }
    buf_printf(out, "%d%d%d\n", unfit, not_run, rds_is_push(&r, reply));
}

static void read_replies(struct slice input, enum fuzz_cut cut, struct buf *out)
{
    redisReader *reader = redisReaderCreate();
    create_array = reader->fn->createArray;
    redisReplyObjectFunctions fn = *reader->fn;
    fn.createArray = create_bounded;
    reader->fn = &fn;
    struct fuzz_random random = fuzz_random(input);
    struct slice piece, rest = input;
    char *hold = NULL;
    bool fine = true;
    while (fine && (piece = fuzz_piece(&rest, cut, &random, &hold)).n > 0) {
        void *reply = NULL;
        CHECK(redisReaderFeed(reader, piece.p, piece.n) == REDIS_OK);
        while ((fine = redisReaderGetReply(reader, &reply) == REDIS_OK) && reply != NULL) {
            say(out, reply);
            meaning(out, reply);
            freeReplyObject(reply);
        }
    }
    free(hold);
    buf_printf(out, "%s\n", fine ? "open" : "broken");
    redisReaderFree(reader);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    struct slice input = { (const char *)bytes, n };
    struct buf first, other;
    buf_init(&first);
    read_replies(input, FUZZ_WHOLE, &first);
    for (enum fuzz_cut cut = FUZZ_BYTES; cut < FUZZ_CUTS; cut++) {
        buf_init(&other);
        read_replies(input, cut, &other);
        fuzz_same(&first, &other, "two splits of replies");
        buf_deinit(&other);
    }
    buf_deinit(&first);
    return 0;
}
