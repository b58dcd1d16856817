/* Where noted links are kept: a table of 1 MiB slabs, in each a bucket for every 64 slots, whose bits say at which of them a link stands.
   So a link is found by two look-ups, and what is kept is in ascending order of addresses. */
#include "links.h"

#include <stdlib.h>

struct node_block *store_block(struct store *store, uint32_t *number)
{
    const unsigned place = __atomic_fetch_add(&store->block_count, 1, __ATOMIC_RELAXED);
    struct node_block *block = place < MAX_BLOCKS ? calloc(1, sizeof *block) : NULL;
    if (block && !(block->nodes = big_alloc(NODES_AT_ONCE * sizeof *block->nodes))) {
        free(block);
        block = NULL;
    }
    if (place < MAX_BLOCKS)
        store->blocks[place] = block;
    if (!block)
        store->no_memory = 1;
    *number = place;
    return block;
}

static void count_slabs(struct store *store, const struct range *ranges, size_t count)
{
    uint64_t before = UINT64_MAX;
    store->slab_count = 0;
    for (size_t i = 0; i < count; i++) {
        uint64_t first = ranges[i].begin >> SLAB_SHIFT, last = (ranges[i].end - 1) >> SLAB_SHIFT;
        store->slab_count += (size_t) (last - first) + (first != before);
        before = last;
    }
}

static void enter(struct store *store, uint64_t number)
{
    size_t place = (size_t) (number * UINT64_C(0x9E3779B97F4A7C15) >> store->hash_shift);
    while (store->table[place].number != UINT64_MAX) {
        if (store->table[place].number == number)
            return;
        place = (place + 1) & (store->table_size - 1);
    }
    store->table[place].number = number;
}

int store_open(struct store *store, const struct chunk_geometry *geometry, const struct range *ranges, size_t count)
{
    memset(store, 0, sizeof *store);
    store->slot_shift = geometry->shift;
    count_slabs(store, ranges, count);
    store->table_size = 16;
    store->hash_shift = 60;
    while (store->table_size < 2 * store->slab_count) {
        store->table_size *= 2;
        store->hash_shift--;
    }
    store->table = malloc(store->table_size * sizeof *store->table);
    store->pools = calloc(count + 1, sizeof *store->pools);
    store->pool_bytes = calloc(count + 1, sizeof *store->pool_bytes);
    if (!store->table || !store->pools || !store->pool_bytes)
        return 0;
    for (size_t i = 0; i < store->table_size; i++)
        store->table[i] = (struct slab) {UINT64_MAX, NULL};
    for (size_t i = 0; i < count; i++)
        for (uint64_t number = ranges[i].begin >> SLAB_SHIFT; number <= (ranges[i].end - 1) >> SLAB_SHIFT; number++)
            enter(store, number);
    return 1;
}

void store_close(struct store *store)
{
    for (size_t i = 0; i < store->pool_count; i++)
        big_free(store->pools[i], store->pool_bytes[i]);
    for (unsigned i = 0; i < store->block_count && i < MAX_BLOCKS; i++) {
        if (store->blocks[i])
            big_free(store->blocks[i]->nodes, NODES_AT_ONCE * sizeof(struct node));
        free(store->blocks[i]);
    }
    free(store->pools);
    free(store->pool_bytes);
    free(store->table);
    memset(store, 0, sizeof *store);
}

int store_make_room(struct store *store, const struct range *ranges, size_t count)
{
    const size_t in_slab = (size_t) (SLAB_BYTES >> (store->slot_shift + 6));
    size_t wanted = 0;
    for (size_t i = 0; i < count; i++)
        if (ranges[i].wanted && !ranges[i].scanned)
            wanted += (size_t) (((ranges[i].end - 1) >> SLAB_SHIFT) - (ranges[i].begin >> SLAB_SHIFT)) + 1;
    struct bucket *pool = big_alloc(wanted * in_slab * sizeof *pool);
    if (!pool)
        return 0;
    store->pool_bytes[store->pool_count] = wanted * in_slab * sizeof *pool;
    store->pools[store->pool_count++] = pool;
    for (size_t i = 0; i < count; i++) {
        if (!ranges[i].wanted || ranges[i].scanned)
            continue;
        for (uint64_t number = ranges[i].begin >> SLAB_SHIFT; number <= (ranges[i].end - 1) >> SLAB_SHIFT; number++) {
            struct slab *slab = store_slab(store, number << SLAB_SHIFT);
            if (slab->buckets)      /* it holds the end of one range and the start of the next */
                continue;
            slab->buckets = pool;
            pool += in_slab;
        }
    }
    return 1;
}
