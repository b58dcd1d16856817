/* Which words of memory may point into a span of addresses: most do not, and that is told several words at a time. */
#ifndef HEAPX_SIEVE_H
#define HEAPX_SIEVE_H

#include <stdint.h>

#define SIEVE_WORDS 1024u               /* at most, in one call */
#define SIEVE_ROOM (SIEVE_WORDS + 4)    /* of what a call writes to: four are written at once, and those that count are kept */

struct sieve {
    unsigned word, swap;                /* swap: not in this machine's order */
    uint64_t low, span;
    uint64_t ignored;                   /* bits of a pointer that the processor does not look at: a tag, a signature */
    int is_wide;                        /* this machine compares four words at once (AVX2) */
};

void sieve_open(struct sieve *sieve, unsigned word, unsigned swap, uint64_t low, uint64_t span, uint64_t ignored);

/* Words that lie in [low, low + span) without the bits that are ignored lose these, and no other does: what is read of them further on
   sees pointers as they would be without a tag. Where a processor ignores none this does nothing. */
void sieve_bare(const struct sieve *sieve, uint8_t *bytes, uint64_t size);

/* The values that lie in [low, low + span), and which word each is. Returns how many. */
unsigned sieve_words(const struct sieve *sieve, const uint8_t *bytes, unsigned words, uint64_t *found, uint16_t *places);

#endif
