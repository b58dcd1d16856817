/* Which words of memory may point into a span of addresses: most do not, and that is told several words at a time. */
#ifndef HEAPX_SIEVE_H
#define HEAPX_SIEVE_H

#include <stdint.h>

#define SIEVE_WORDS 1024u               /* at most, in one call */
#define SIEVE_ROOM (SIEVE_WORDS + 4)    /* of what a call writes to: four are written at once, and those that count are kept */

struct sieve {
    unsigned word, swap;                /* swap: not in this machine's order */
    uint64_t low, span;
    int is_wide;                        /* this machine compares four words at once (AVX2) */
};

void sieve_open(struct sieve *sieve, unsigned word, unsigned swap, uint64_t low, uint64_t span);

/* The values that lie in [low, low + span), and which word each is. Returns how many. */
unsigned sieve_words(const struct sieve *sieve, const uint8_t *bytes, unsigned words, uint64_t *found, uint16_t *places);

#endif
