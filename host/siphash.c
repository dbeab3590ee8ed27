/* See siphash.h. Words are read as the machine has them: a hash does not leave it. */
#include "siphash.h"

static inline uint64_t rotate(uint64_t x, int n)
{
    return x << n | x >> (64 - n);
}

static inline void mix(uint64_t v[4])
{
    v[0] += v[1];
    v[1] = rotate(v[1], 13) ^ v[0];
    v[0] = rotate(v[0], 32);
    v[2] += v[3];
    v[3] = rotate(v[3], 16) ^ v[2];
    v[0] += v[3];
    v[3] = rotate(v[3], 21) ^ v[0];
    v[2] += v[1];
    v[1] = rotate(v[1], 17) ^ v[2];
    v[2] = rotate(v[2], 32);
}

static inline void absorb(uint64_t v[4], uint64_t word)
{
    v[3] ^= word;
    mix(v);
    v[0] ^= word;
}

uint64_t siphash(const uint64_t secret[2], struct slice text)
{
    uint64_t v[4] = { secret[0] ^ 0x736f6d6570736575, secret[1] ^ 0x646f72616e646f6d,
                      secret[0] ^ 0x6c7967656e657261, secret[1] ^ 0x7465646279746573 };
    uint64_t word;
    size_t at = 0;
    for (; text.n - at >= sizeof word; at += sizeof word) {
        memcpy(&word, text.p + at, sizeof word);
        absorb(v, word);
    }
    word = 0;
    if (at < text.n)
        memcpy(&word, text.p + at, text.n - at);
    absorb(v, word | (uint64_t)text.n << 56);
    v[2] ^= 0xff;
    for (int i = 0; i < 3; i++)
        mix(v);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}
