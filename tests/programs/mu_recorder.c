/* mu_recorder RECORD THREADS SLOTS ROUNDS [busy]

   THREADS threads call malloc, calloc, realloc, aligned_alloc and free at random, also for each other's blocks; every live block stands in
   the record with the size that was asked for. Two further threads do so and end. Then all are parked, or with `busy` go on with blocks
   that are not recorded. */

#include <stdint.h>

struct block {
    uint64_t address; /* 0: an empty slot */
    uint64_t requested;
};

#include "recording.h"

static size_t request(uint64_t *random)
{
    uint64_t kind = stage_random(random) % 1000;

    if (kind == 0)
        return (size_t)131053 + stage_random(random) % 4000000;
    return stage_request(random);
}

static void keep(struct block *block, void *memory, size_t size)
{
    if (!memory)
        stage_fail("out of memory");
    memset(memory, 0x5a, size < 64 ? size : 64);
    block->address = (uint64_t)(uintptr_t)memory;
    block->requested = size;
}

int main(int argc, char **argv)
{
    record_begin(argc, argv, 16);
    record_rounds();
    stage_ready(1);
    for (;;)
        stage_command();
}
