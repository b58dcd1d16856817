/* See sieve.h. No branch depends on a word: which of them are pointers cannot be guessed. */
#include "../common/heapx.h"
#include "sieve.h"

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

/* ---- weak pointers ---- */

#define EACH_BYTE 0x0101010101010101ull
#define UPPER_BITS (0x80 * EACH_BYTE)

void weak_sieve_ignore(struct weak_sieve *sieve, uint64_t ignored)
{
    sieve->ignored = ignored;
    sieve->zeros_until = ignored ? (unsigned) __builtin_ctzll(ignored) / 8 : 8;
}

void weak_sieve_add(struct weak_sieve *sieve, uint64_t begin, uint64_t end)
{
    const unsigned top = end > 256 ? (63u - (unsigned) __builtin_clzll(end - 1)) / 8 : 0;
    struct weak_span *range = &sieve->ranges[sieve->count++];
    range->low = begin;
    range->span = end - begin;
    range->top = top;
    range->top_low = (uint8_t) (begin >> 8 * top);
    range->top_span = (uint8_t) (((end - 1) >> 8 * top) - (begin >> 8 * top));
}

#if HAS_WIDE

__attribute__((target("avx2")))
static uint64_t wide_weak(const struct weak_sieve *sieve, const uint8_t *bytes)
{
    const __m256i zero = _mm256_setzero_si256(), low_48 = _mm256_set1_epi64x((int64_t) (UINT64_MAX >> (64 - ADDRESS_BITS)));
    const __m256i odd_places = _mm256_set1_epi64x((int64_t) (UINT64_MAX >> 8)), guard = _mm256_set1_epi64x((int64_t) sieve->guard);
    const __m128i right = _mm_cvtsi32_si128((int) sieve->turn), left = _mm_cvtsi32_si128((int) (64 - sieve->turn));
    const __m256i has_guard = _mm256_set1_epi64x(-(int64_t) (sieve->turn != 0));
    uint64_t found = 0;
    for (unsigned r = 0; r < sieve->count; r++) {
        const struct weak_span *range = &sieve->ranges[r];
        /* value - low < span of numbers without a sign, as a comparison of numbers with one */
        const __m256i low = _mm256_set1_epi64x((int64_t) (range->low ^ 1ull << 63));
        const __m256i span = _mm256_set1_epi64x((int64_t) (range->span ^ 1ull << 63));
        const __m256i top_low = _mm256_set1_epi8((char) range->top_low), top_span = _mm256_set1_epi8((char) range->top_span);
        for (unsigned i = 0; i < WEAK_GROUP; i += 4) {
            const uint8_t *at = bytes + 8 * i;
            const __m256i value = _mm256_loadu_si256((const __m256i *) (const void *) at);
            const __m256i masked = _mm256_sub_epi64(_mm256_and_si256(value, low_48), low);
            const __m256i packed = _mm256_sub_epi64(_mm256_srli_epi64(value, 64 - ADDRESS_BITS), low);
            const __m256i turned = _mm256_or_si256(_mm256_srl_epi64(value, right), _mm256_sll_epi64(value, left));
            const __m256i mangled = _mm256_sub_epi64(_mm256_xor_si256(turned, guard), low);
            const __m256i is_bare = _mm256_cmpeq_epi64(_mm256_srli_epi64(value, ADDRESS_BITS), zero);
            __m256i any = _mm256_andnot_si256(is_bare, _mm256_cmpgt_epi64(span, masked));
            any = _mm256_or_si256(any, _mm256_cmpgt_epi64(span, packed));
            any = _mm256_or_si256(any, _mm256_and_si256(has_guard, _mm256_cmpgt_epi64(span, mangled)));
            const __m256i tops = _mm256_sub_epi8(_mm256_loadu_si256((const __m256i *) (const void *) (at + range->top + 1)), top_low);
            __m256i above = zero;
            for (unsigned byte = range->top + 2; byte <= sieve->zeros_until; byte++)
                above = _mm256_or_si256(above, _mm256_loadu_si256((const __m256i *) (const void *) (at + byte)));
            __m256i odd = _mm256_and_si256(_mm256_cmpeq_epi8(_mm256_min_epu8(tops, top_span), tops), _mm256_cmpeq_epi8(above, zero));
            any = _mm256_or_si256(any, _mm256_and_si256(odd, odd_places));
            const unsigned none = (unsigned) _mm256_movemask_pd(_mm256_castsi256_pd(_mm256_cmpeq_epi64(any, zero)));
            found |= (uint64_t) (none ^ 15u) << i;
        }
    }
    return found;
}

#endif

/* The eight bytes that begin so many behind those of `value`. */
static inline uint64_t shifted(uint64_t value, uint64_t next, unsigned bytes)
{
    return bytes == 8 ? next : value >> 8 * bytes | next << (64 - 8 * bytes);
}

/* 0: at none of the seven odd places from the second byte of `value` on stands an address of the range: none has such a byte for its top
   one, and zeros behind it. No byte carries into the next. */
static inline uint64_t may_be_odd(const struct weak_span *range, unsigned zeros_until, uint64_t value, uint64_t next)
{
    const unsigned high = range->top_low + range->top_span;
    uint64_t above = 0;
    if (range->top > 6 || high > 127)
        return 1;
    for (unsigned byte = range->top + 2; byte <= zeros_until; byte++)
        above |= shifted(value, next, byte);
    const uint64_t tops = shifted(value, next, range->top + 1), low = tops & ~UPPER_BITS;
    const uint64_t in_range = (low + (128u - range->top_low) * EACH_BYTE) & ~(low + (127u - high) * EACH_BYTE) & ~tops;
    const uint64_t zeros = ~(((above & ~UPPER_BITS) + ~UPPER_BITS) | above);
    return in_range & zeros & (UPPER_BITS >> 8);
}

uint64_t weak_sieve_words(const struct weak_sieve *sieve, const uint8_t *bytes)
{
#if HAS_WIDE
    if (sieve->is_wide)
        return wide_weak(sieve, bytes);
#endif
    uint64_t found = 0;
    for (unsigned i = 0; i < WEAK_GROUP; i++) {
        const uint64_t value = load_word(bytes + 8 * i, 8, 0), next = load_word(bytes + 8 * i + 8, 8, 0);
        const uint64_t masked = value & (UINT64_MAX >> (64 - ADDRESS_BITS));
        unsigned any = weak_is_in(sieve, masked) & (masked != value);
        any |= (unsigned) weak_is_in(sieve, value >> (64 - ADDRESS_BITS));
        any |= weak_is_in(sieve, weak_unmangled(sieve, value)) & (sieve->turn != 0);
        for (unsigned r = 0; r < sieve->count; r++)
            any |= may_be_odd(&sieve->ranges[r], sieve->zeros_until, value, next) != 0;
        found |= (uint64_t) (any != 0) << i;
    }
    return found;
}
