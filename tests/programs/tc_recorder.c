/* tc_recorder RECORD THREADS SLOTS ROUNDS [busy]

   THREADS threads call malloc, calloc, realloc, aligned_alloc and free at random, also for each other's blocks; every live block stands in
   the record with the size that was asked for and malloc_usable_size. Two further threads do so and end. Then all are parked, or with `busy`
   go on with blocks that are not recorded. The record begins with MallocExtension's own figures. Commands: `r` returns free memory and asks
   for the figures again, `s` only asks. */

#include <malloc.h>
#include <stdint.h>

#define FIGURES 7

struct block {
    uint64_t address; /* 0: an empty slot */
    uint64_t requested, usable;
};

struct header {
    uint64_t threads, slots, leaked; /* a block that nothing points to, with its bits turned over */
    uint64_t figures[FIGURES];
};

/* Weak: the library is preloaded, or it is another one. */
extern int MallocExtension_GetNumericProperty(const char *, size_t *) __attribute__((weak));
extern void MallocExtension_ReleaseFreeMemory(void) __attribute__((weak));

static const char *const NAMES[FIGURES] = {
    "generic.current_allocated_bytes",       "generic.heap_size",
    "tcmalloc.pageheap_free_bytes",          "tcmalloc.pageheap_unmapped_bytes",
    "tcmalloc.central_cache_free_bytes",     "tcmalloc.transfer_cache_free_bytes",
    "tcmalloc.thread_cache_free_bytes",
};

#include "recording.h"

static struct header *header;

static void ask(void)
{
    unsigned i;

    for (i = 0; i < FIGURES; i++) {
        size_t figure = 0;

        if (MallocExtension_GetNumericProperty)
            MallocExtension_GetNumericProperty(NAMES[i], &figure);
        header->figures[i] = figure;
    }
}

static size_t request(uint64_t *random)
{
    if (stage_random(random) % 1000 == 0)
        return (size_t)200000 + stage_random(random) % 4000000;
    return stage_request(random);
}

static void keep(struct block *block, void *memory, size_t size)
{
    if (!memory)
        stage_fail("out of memory");
    memset(memory, 0x5a, size < 64 ? size : 64);
    block->address = (uint64_t)(uintptr_t)memory;
    block->requested = size;
    block->usable = malloc_usable_size(memory);
}

int main(int argc, char **argv)
{
    header = record_begin(argc, argv, sizeof *header);
    header->leaked = ~(uint64_t)(uintptr_t)malloc(4321);
    record_rounds();
    ask();
    stage_ready(1);
    for (;;) {
        if (stage_command() == 'r' && MallocExtension_ReleaseFreeMemory)
            MallocExtension_ReleaseFreeMemory();
        ask();
        stage_ready(1);
    }
}
