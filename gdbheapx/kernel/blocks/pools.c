/* Pools: pieces of equal length, each cut into cells of one size, with a header that has the list of its free cells (CPython,
   Objects/obmalloc.c: struct pool_header, the same from 3.6 to 3.14 where a word has 64 bits). */
#include "../common/heapx.h"
#include "stream.h"

#include <stdlib.h>

enum { AT_COUNT = 0, AT_FREE = 8, AT_CLASS = 36, AT_NEXT_OFFSET = 40, AT_LAST_OFFSET = 44 };
#define UNIT 16u
#define MOST_CLASSES 64u
#define MOST_POOL (32u << 10)


struct pool {
    uint64_t size, used, carved, cells;     /* bytes of a cell; cells: in use, handed out ever, in all */
};

/* 0: no pool. */
static int pool_read(struct pool *pool, const uint8_t *header, unsigned swap, uint64_t bytes)
{
    const uint64_t class = load_word(header + AT_CLASS, 4, swap), next = load_word(header + AT_NEXT_OFFSET, 4, swap);
    pool->size = (class + 1) * UNIT;
    if (class >= MOST_CLASSES || load_word(header + AT_LAST_OFFSET, 4, swap) != bytes - pool->size)
        return 0;
    pool->cells = (bytes - POOL_HEADER_BYTES) / pool->size;
    pool->used = load_word(header + AT_COUNT, 4, swap);
    pool->carved = next < POOL_HEADER_BYTES ? pool->cells + 1 : (next - POOL_HEADER_BYTES) / pool->size;
    return pool->used <= pool->carved && pool->carved <= pool->cells && (next - POOL_HEADER_BYTES) % pool->size == 0;
}

struct pools {
    struct block_source source;             /* first: pools are a block_source */
    const struct source *memory;
    const uint64_t *runs;                   /* begin and end of each run of pools, sorted; the caller's */
    uint64_t count, bytes, run, at;         /* at: of the next pool; 0: the run's first */
    uint64_t begin, length;                 /* the pool at hand */
    uint64_t cell;
    struct pool pool;                       /* cells 0: none at hand */
    unsigned swap;
    struct pool_sums sums;
    uint8_t is_free[MOST_POOL / UNIT];
    uint8_t data[MOST_POOL];
};

/* The next pool's address; 0: there is none. */
static uint64_t pools_step(struct pools *pools)
{
    while (pools->run < pools->count) {
        const uint64_t begin = pools->runs[2 * pools->run], end = pools->runs[2 * pools->run + 1];
        const uint64_t at = pools->at ? pools->at : begin;
        if (at < end && end - at >= pools->bytes) {
            pools->at = at + pools->bytes;
            return at;
        }
        pools->run++;
        pools->at = 0;
    }
    return 0;
}

static void find_free(struct pools *pools)
{
    uint64_t at = load_word(pools->data + AT_FREE, 8, pools->swap);
    memset(pools->is_free, 0, (size_t) pools->pool.carved);
    while (at) {
        const uint64_t away = at - pools->begin - POOL_HEADER_BYTES, cell = away / pools->pool.size;
        if (away % pools->pool.size || cell >= pools->pool.carved || pools->is_free[cell])
            break;
        const uint64_t place = POOL_HEADER_BYTES + away;
        if (place + 8 > pools->length)
            break;
        pools->is_free[cell] = 1;
        at = load_word(pools->data + place, 8, pools->swap);
    }
}

/* Reads the pool at hand: 1, 0 if it has no used cell, INTERRUPTED. */
static int pools_open(struct pools *pools, uint64_t at)
{
    const int64_t got = source_read(pools->memory, at, pools->data, pools->bytes);
    if (got < 0) {
        pools->at = at;
        return INTERRUPTED;
    }
    pools->begin = at;
    pools->length = (uint64_t) got;
    pools->cell = 0;
    if (got < POOL_HEADER_BYTES || !pool_read(&pools->pool, pools->data, pools->swap, pools->bytes) || !pools->pool.used) {
        pools->pool.carved = 0;
        return 0;
    }
    find_free(pools);
    return 1;
}

static int pools_next(struct block_source *self, double seconds, struct block_rows *rows)
{
    struct pools *pools = (struct pools *) self;
    const double deadline = clock_now() + seconds;
    const uint64_t before = rows->count;
    for (unsigned opened = 0; rows->count < rows->room;) {
        for (; pools->cell < pools->pool.carved && rows->count < rows->room; pools->cell++)
            if (!pools->is_free[pools->cell])
                rows_add(rows, pools->begin + POOL_HEADER_BYTES + pools->cell * pools->pool.size, pools->pool.size, CLASS_USED, 0,
                         NO_ARENA);
        if (pools->cell < pools->pool.carved || (self->keeps && rows->count > before))
            break;
        if (opened++ % 64 == 63 && clock_now() > deadline)
            break;
        const uint64_t at = pools_step(pools);
        if (!at || pools_open(pools, at) < 0)
            break;
    }
    return 0;
}

static struct block_state pools_state(const struct block_source *self)
{
    const struct pools *pools = (const struct pools *) self;
    struct pools *rest = (struct pools *) self;     /* a run that is at its end is left */
    const uint64_t run = pools->run, at = pools->at, next = pools_step(rest);
    rest->run = run;
    rest->at = at;
    if (pools->cell < pools->pool.carved) {
        const struct block_state inside = {0, STOP_END, pools->begin + POOL_HEADER_BYTES + pools->cell * pools->pool.size};
        return inside;
    }
    const struct block_state state = {!next, STOP_END, next ? next : pools->count ? pools->runs[2 * pools->count - 1] : 0};
    return state;
}

static void pools_free(struct block_source *self)
{
    free(self);
}

static const uint8_t *pools_lend(const struct block_source *self, uint64_t address, uint64_t *length)
{
    const struct pools *pools = (const struct pools *) self;
    if (address - pools->begin >= pools->length)
        return NULL;
    *length = pools->length - (address - pools->begin);
    return pools->data + (address - pools->begin);
}

/* `runs`: begin and end of each, sorted, multiples of `bytes` long; they stay the caller's. NULL: no memory, or no such pools. */
struct block_source *heapx_pool_blocks(const struct source *memory, int little_endian, uint64_t bytes, const uint64_t *runs,
                                       uint64_t count)
{
    struct pools *pools = bytes <= MOST_POOL && bytes >= POOL_HEADER_BYTES ? calloc(1, sizeof *pools) : NULL;
    if (!pools)
        return NULL;
    const struct block_source source = {0, pools_next, pools_state, pools_free, pools_lend, 0, NULL};
    pools->source = source;
    pools->memory = memory;
    pools->swap = is_swapped((uint64_t) little_endian);
    pools->bytes = bytes;
    pools->runs = runs;
    pools->count = count;
    return &pools->source;
}

/* Adds up what the headers say, for at most about `seconds`: 1: there is more; 0: `out` has the sums; INTERRUPTED. */
int64_t heapx_pool_sums(struct block_source *self, struct pool_sums *out, double seconds)
{
    struct pools *pools = (struct pools *) self;
    const double deadline = clock_now() + seconds;
    struct pool_sums *sums = &pools->sums;
    uint64_t at;
    for (unsigned done = 0; (at = pools_step(pools));) {
        struct pool pool;
        const int64_t got = source_read(pools->memory, at, pools->data, POOL_HEADER_BYTES);
        if (got < 0) {
            pools->at = at;
            return INTERRUPTED;
        }
        sums->pools++;
        if (got < POOL_HEADER_BYTES || !pool_read(&pool, pools->data, pools->swap, pools->bytes))
            sums->bad++;
        else if (!pool.used)
            sums->free_pools++;
        else {
            sums->used_bytes += pool.used * pool.size;
            sums->free_bytes += (pool.cells - pool.used) * pool.size;
            sums->lost_bytes += pools->bytes - pool.cells * pool.size;
        }
        if (++done % 256 == 0 && clock_now() > deadline)
            return 1;
    }
    *out = *sums;
    return 0;
}
