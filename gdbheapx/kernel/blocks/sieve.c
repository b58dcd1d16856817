/* See sieve.h. No branch depends on a word: which of them are pointers cannot be guessed. */
#include "sieve.h"

#include "../common/heapx.h"

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#define HAS_WIDE 1
#include <immintrin.h>
#else
#define HAS_WIDE 0
#endif

void sieve_open(struct sieve *sieve, unsigned word, unsigned swap, uint64_t low, uint64_t span, uint64_t ignored)
{
    sieve->word = word;
    sieve->swap = swap;
    sieve->low = low;
    sieve->span = span;
    sieve->ignored = ignored;
    sieve->is_wide = 0;
#if HAS_WIDE
    sieve->is_wide = word == 8 && !swap && __builtin_cpu_supports("avx2");
#endif
}

#if HAS_WIDE

/* By the bits of a comparison of four words: the halves of those that are kept, moved to the front, and their numbers. */
static const uint32_t HALVES[16][8] = {
    {0, 0, 0, 0, 0, 0, 0, 0}, {0, 1, 0, 0, 0, 0, 0, 0}, {2, 3, 0, 0, 0, 0, 0, 0}, {0, 1, 2, 3, 0, 0, 0, 0},
    {4, 5, 0, 0, 0, 0, 0, 0}, {0, 1, 4, 5, 0, 0, 0, 0}, {2, 3, 4, 5, 0, 0, 0, 0}, {0, 1, 2, 3, 4, 5, 0, 0},
    {6, 7, 0, 0, 0, 0, 0, 0}, {0, 1, 6, 7, 0, 0, 0, 0}, {2, 3, 6, 7, 0, 0, 0, 0}, {0, 1, 2, 3, 6, 7, 0, 0},
    {4, 5, 6, 7, 0, 0, 0, 0}, {0, 1, 4, 5, 6, 7, 0, 0}, {2, 3, 4, 5, 6, 7, 0, 0}, {0, 1, 2, 3, 4, 5, 6, 7},
};
static const uint16_t NUMBERS[16][4] = {
    {0, 0, 0, 0}, {0, 0, 0, 0}, {1, 0, 0, 0}, {0, 1, 0, 0}, {2, 0, 0, 0}, {0, 2, 0, 0}, {1, 2, 0, 0}, {0, 1, 2, 0},
    {3, 0, 0, 0}, {0, 3, 0, 0}, {1, 3, 0, 0}, {0, 1, 3, 0}, {2, 3, 0, 0}, {0, 2, 3, 0}, {1, 2, 3, 0}, {0, 1, 2, 3},
};
static const uint8_t COUNTS[16] = {0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4};

__attribute__((target("avx2")))
static unsigned wide(const struct sieve *sieve, const uint8_t *bytes, unsigned words, uint64_t *found, uint16_t *places)
{
    const __m256i sign = _mm256_set1_epi64x((int64_t) (1ull << 63)), low = _mm256_set1_epi64x((int64_t) sieve->low);
    const __m256i span = _mm256_xor_si256(_mm256_set1_epi64x((int64_t) sieve->span), sign);
    unsigned count = 0;
    for (unsigned i = 0; i < words; i += 4) {
        const __m256i values = _mm256_loadu_si256((const __m256i *) (const void *) (bytes + 8 * i));
        const __m256i away = _mm256_xor_si256(_mm256_sub_epi64(values, low), sign);
        const unsigned kept = (unsigned) _mm256_movemask_pd(_mm256_castsi256_pd(_mm256_cmpgt_epi64(span, away)));
        const __m256i order = _mm256_loadu_si256((const __m256i *) (const void *) HALVES[kept]);
        _mm256_storeu_si256((__m256i *) (void *) (found + count), _mm256_permutevar8x32_epi32(values, order));
        uint64_t numbers;
        memcpy(&numbers, NUMBERS[kept], 8);
        numbers += i * 0x0001000100010001ull;
        memcpy(places + count, &numbers, 8);
        count += COUNTS[kept];
    }
    return count;
}

#endif

/* Eight bytes each, in this machine's order. */
static unsigned plain(const struct sieve *sieve, const uint8_t *bytes, unsigned first, unsigned words, uint64_t *found, uint16_t *places)
{
    const uint64_t low = sieve->low, span = sieve->span;
    unsigned count = 0;
    for (unsigned i = first; i < words; i++) {
        uint64_t value;
        memcpy(&value, bytes + 8 * i, 8);
        found[count] = value;
        places[count] = (uint16_t) i;
        count += value - low < span;
    }
    return count;
}

unsigned sieve_words(const struct sieve *sieve, const uint8_t *bytes, unsigned words, uint64_t *found, uint16_t *places)
{
    unsigned count = 0;
    if (sieve->word == 8 && !sieve->swap) {
#if HAS_WIDE
        if (sieve->is_wide)
            count = wide(sieve, bytes, words & ~3u, found, places);
        return count + plain(sieve, bytes, sieve->is_wide ? words & ~3u : 0, words, found + count, places + count);
#else
        return plain(sieve, bytes, 0, words, found, places);
#endif
    }
    for (unsigned i = 0; i < words; i++) {
        found[count] = load_word(bytes + sieve->word * i, sieve->word, sieve->swap);
        places[count] = (uint16_t) i;
        count += found[count] - sieve->low < sieve->span;
    }
    return count;
}

void sieve_bare(const struct sieve *sieve, uint8_t *bytes, uint64_t size)
{
    const uint64_t low = sieve->low, span = sieve->span, address = ~sieve->ignored;
    for (uint64_t at = 0; sieve->ignored && at + 8 <= size; at += 8) {
        const uint64_t value = load_word(bytes + at, 8, sieve->swap), bare = value & address;
        const uint64_t kept = bare - low < span ? bare : value;
        const uint64_t stored = sieve->swap ? __builtin_bswap64(kept) : kept;
        memcpy(bytes + at, &stored, 8);
    }
}
