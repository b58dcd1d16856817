/* many BLOCKS: a table of chains, BLOCKS blocks of 24 bytes in all, some of them lost; between them large ones that were never written, so that
   the heap is 200 bytes a block, and its core has a hole for most of that. Chains are made out of order: pointers lead up and down. */
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct entry { struct entry *next; void *value; long key; };

#define GAP_BYTES (1ul << 20)
#define HEAP_BYTES 200ul
#define SMALL_BYTES 32ul /* of such a block, with its header */

static struct entry **volatile table;
static void *volatile gaps;

int main(int argc, char **argv)
{
    size_t blocks = argc == 2 ? strtoull(argv[1], NULL, 10) : 0, buckets = blocks / 8 + 1, every, made;
    unsigned long long seed = 88172645463325252ull;

    if (!blocks)
        return 2;
    /* Everything comes from the break: one heap, with the large ones inside. */
    mallopt(M_MMAP_MAX, 0);
    table = calloc(buckets, sizeof *table);
    every = GAP_BYTES / (HEAP_BYTES - SMALL_BYTES);
    for (made = 0; made < blocks; made += 2) {
        struct entry *entry = malloc(sizeof *entry), **place;

        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        /* Close to the one before, now and then far away, as blocks of one request are. */
        place = table + ((seed >> 11) % 100 ? made / 8 + (seed >> 20) % 1000 : (seed >> 11)) % buckets;
        entry->key = 7;
        entry->value = malloc(24);
        if (!entry->value)
            return 1;
        memset(entry->value, 0x41, 24);
        if (made % 100 == 0) /* lost, with its value */
            continue;
        entry->next = *place;
        *place = entry;
        if (made % every < 2) {
            void **gap = malloc(GAP_BYTES);

            if (!gap)
                return 1;
            *gap = gaps;
            gaps = gap;
        }
    }
    if (write(1, "ready\n", 6) != 6)
        return 1;
    pause();
    return 0;
}
