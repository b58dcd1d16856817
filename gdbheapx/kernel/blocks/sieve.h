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

/* ---- weak pointers: nearly no word of memory may hold the begin of a block in a weak way ---- */

#define WEAK_GROUP 64u              /* words of one call */
#define WEAK_SLACK 64u              /* bytes behind them that are read, too, whatever they are */
#define ADDRESS_BITS 48u

/* Addresses of [low, low + span): their bytes above the top one are zero, and that one is in [top_low, top_low + top_span]. */
struct weak_span {
    uint64_t low, span;
    unsigned top;
    uint8_t top_low, top_span;
};

/* A program's heaps lie in two places, far apart: text, whose bytes lie between theirs, is none of their addresses. */
struct weak_sieve {
    struct weak_span ranges[2];
    unsigned count;
    uint64_t guard;
    unsigned turn;                  /* how far the C library rotates what it mangles, 64: not at all; 0: no guard is known */
    int is_wide;                    /* this machine compares four words at once (AVX2) */
    uint64_t ignored;               /* bits of a pointer that are no address */
    unsigned zeros_until;           /* so many bytes of a pointer, from its lowest on, have none of these */
};

/* Before the ranges: these bits are no address. */
void weak_sieve_ignore(struct weak_sieve *sieve, uint64_t ignored);

/* One more range: first those below. There are two at most. */
void weak_sieve_add(struct weak_sieve *sieve, uint64_t begin, uint64_t end);

static inline int weak_is_in(const struct weak_sieve *sieve, uint64_t value)
{
    return (value - sieve->ranges[0].low < sieve->ranges[0].span) | (value - sieve->ranges[1].low < sieve->ranges[1].span);
}

static inline uint64_t weak_unmangled(const struct weak_sieve *sieve, uint64_t value)
{
    return (value >> (sieve->turn & 63) | value << (-sieve->turn & 63)) ^ sieve->guard;
}

/* One bit for each word of a group, of eight bytes in this machine's order: it, or what begins in it at an odd place, may be an address.
   Where the bit is 0 none is. */
uint64_t weak_sieve_words(const struct weak_sieve *sieve, const uint8_t *bytes);

#endif
