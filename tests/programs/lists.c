/* lists RECORD ORDER COUNT: one fastbin of COUNT members, whose list has them in random, ascending (up) or descending (down) order of addresses.

   Run it with glibc.malloc.tcache_count=0. RECORD: members, their bytes (chunk sizes). */

#include "stage.h"

#define USABLE_BYTES 56

static struct record {
    uint64_t members, bytes;
} *record;

static uint64_t count, state = 88172645463325252ULL;

static void *need(size_t bytes)
{
    void *block = malloc(bytes);

    if (!block)
        stage_fail("out of memory");
    return block;
}

static void shuffle(void **blocks)
{
    uint64_t i;

    for (i = count - 1; i > 0; i--) {
        uint64_t j = stage_random(&state) % (i + 1);
        void *other = blocks[j];

        blocks[j] = blocks[i];
        blocks[i] = other;
    }
}

/* Frees the blocks so that the list they stand on, newest first, has the order that `order` names. */
static void free_in(const char *order, void **blocks)
{
    uint64_t i;

    if (!strcmp(order, "random"))
        shuffle(blocks);
    for (i = 0; i < count; i++)
        free(blocks[!strcmp(order, "up") ? count - 1 - i : i]);
}

static void one_list(const char *order)
{
    void **blocks = stage_pages(count * sizeof *blocks);
    uint64_t i;

    for (i = 0; i < count; i++)
        blocks[i] = need(USABLE_BYTES);
    need(24); /* the last one must not border top */
    free_in(order, blocks);
    record->members = count;
    record->bytes = count * (USABLE_BYTES + 8);
}

int main(int argc, char **argv)
{
    if (argc != 4)
        stage_fail("usage: lists RECORD ORDER COUNT");
    record = stage_record(argv[1], sizeof *record);
    count = strtoull(argv[3], NULL, 10);
    one_list(argv[2]);
    stage_ready(1);
    for (;;)
        stage_command();
}
