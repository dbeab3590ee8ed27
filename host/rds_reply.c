/* What a reply of Redis means for its connection. */
#include "rds_internal.h"

bool rds_is_error(const redisReply *reply, const char *word)
{
    size_t n = strlen(word);
    return reply->type == REDIS_REPLY_ERROR && strncmp(reply->str, word, n) == 0 &&
           (reply->str[n] == ' ' || reply->str[n] == '\0');
}

bool rds_not_run(const redisReply *reply)
{
    static const char *const words[] = { "NOSCRIPT", "MOVED", "ASK", "TRYAGAIN", "LOADING" };
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (rds_is_error(reply, words[i]))
            return true;
    }
    return false;
}

bool rds_is_unfit(const redisReply *reply)
{
    return rds_is_error(reply, "READONLY") || rds_is_error(reply, "LOADING") ||
           rds_is_error(reply, "MASTERDOWN");
}

bool rds_is_push(const struct rds *r, const redisReply *reply)
{
    static const char *const kinds[] = { "message",    "pmessage",    "subscribe",
                                         "psubscribe", "unsubscribe", "punsubscribe" };
    if (reply->type == REDIS_REPLY_ERROR)
        return r->sent.first == NULL;
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements < 3 ||
        reply->element[0]->type != REDIS_REPLY_STRING)
        return false;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (strcmp(reply->element[0]->str, kinds[i]) == 0)
            return true;
    }
    return false;
}
