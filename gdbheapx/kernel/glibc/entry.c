/* What stands at one entry of a list: out of the store where its link was noted, else read; or the memory around it is to be looked through
   first. */
#include "links.h"

#define ENTRIES_A_READ 48u      /* a list that has more in each page that is read does well without a store */
#define READS_A_MIB 16u         /* a page read costs about 1 us, to look through 1 MiB about 100 */
#define RANGES_WITH_TIME 8u

static struct range *range_of(const struct lists *lists, uint64_t address)
{
    size_t low = 0, high = lists->range_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (lists->ranges[middle].end <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low < lists->range_count && lists->ranges[low].begin <= address ? &lists->ranges[low] : NULL;
}

/* The first ranges are given more time: of a few lists nobody knows how long they are. Hundreds of arenas must not be given it each. */
static uint64_t enough_reads(const struct lists *lists, const struct range *range)
{
    const uint64_t more = lists->pages.reads < RANGES_WITH_TIME * lists->patience ? lists->patience : 0;
    return lists->patience ? more + (range->end - range->begin) / SLAB_BYTES * READS_A_MIB : 0;
}

/* Once so many pages of a range were read that it is worth to look through it, that is done, and with others that are half-way there:
   what a list that jumps between them needs is noted at once. */
static void look_at_ranges(struct lists *lists, const struct range *range)
{
    if (range->reads < enough_reads(lists, range) || lists->pages.reads * ENTRIES_A_READ < lists->plain_entries)
        return;
    for (size_t i = 0; i < lists->range_count; i++) {
        struct range *other = &lists->ranges[i];
        other->wanted |= !other->scanned && other->reads && other->reads >= (other->end - other->begin) / SLAB_BYTES * READS_A_MIB / 2;
    }
}

/* 1 if the list must wait until the memory around `address` was looked through. */
static int must_wait(struct lists *lists, const struct list *list, uint64_t address)
{
    struct range *range = lists->may_scan && !list->exact ? range_of(lists, address) : NULL;
    if (!range || range->scanned)
        return 0;
    if (!range->wanted) {
        range->reads++;
        look_at_ranges(lists, range);
    }
    return range->wanted;
}

static int from_store(const struct lists *lists, int kind, uint64_t key, struct link *link)
{
    const struct bucket *bucket = store_bucket(&lists->store, key);
    const uint32_t number = bucket ? bucket_node(&lists->store, bucket, key) : NO_NODE;
    if (number == NO_NODE)
        return 0;
    const struct node *node = store_node(&lists->store, number);
    if (!(node->back & (kind == BIN ? NODE_IN_BIN : NODE_SINGLE)))
        return 0;
    link->next = node->next & ADDRESS_MASK;
    link->back = node->back & ADDRESS_MASK;
    link->raw = node_raw(node);
    link->node = number;
    return 1;
}

int load(struct lists *lists, const struct list *list, uint64_t entry, struct link *link)
{
    const struct chunk_geometry *geometry = &lists->geometry;
    const unsigned word = geometry->word, swap = geometry->swap;
    const uint64_t mask = word_mask(geometry), key = (entry + link_offset(geometry, list->kind)) & mask;
    uint64_t from = key, size = word;
    uint8_t bytes[32];
    if (lists->has_store && from_store(lists, list->kind, key, link)) {
        lists->store_steps++;
        return LOAD_DONE;
    }
    if (list->kind == BIN) {
        from = entry;
        size = 4 * word;
    } else if (list->kind == TCACHE_SIZED) {
        from = (key - word) & mask;
        size = 2 * word;
    }
    if (!pages_has(&lists->pages, from, size) && must_wait(lists, list, key))
        return LOAD_WAIT;
    if (!pages_read(&lists->pages, from, bytes, size))
        return lists->pages.interrupted ? LOAD_PAUSED : LOAD_UNREADABLE;
    const uint8_t *place = bytes + (list->kind == BIN ? 2 * word : size - word);
    link->next = load_word(place, word, swap);
    link->raw = size > word ? load_word(place - word, word, swap) : 0;
    link->back = list->kind == BIN ? load_word(place + word, word, swap) : 0;
    link->node = NO_NODE;
    if (lists->mangled && list->kind != BIN)   /* PROTECT_PTR / REVEAL_PTR, malloc.c: always by 12 bits */
        link->next = (link->next ^ key >> 12) & mask;
    return LOAD_DONE;
}
