/* damage RECORD KIND

   Builds three arenas, then breaks its own heap in one place and writes the address of the damage to the record.

   KIND: none, rich (chunks of every kind, and no damage), size (a size field in the middle of the main heap), size-thread (in a thread's heap), bin-cycle (a bin's list
   that never comes back), bin-wild (fd points to nowhere), fast-cycle (of the cache where there are no fastbins), tcache-cycle,
   tcache-wild, top-size, unmap-heap (a whole heap of a thread arena, with its malloc_state), unmap-subheap (a later heap of
   it), unmap-page (a page in the middle). */

#include "stage.h"
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>

struct record {
    uint64_t address;  /* of what was overwritten or unmapped */
    uint64_t bytes;    /* of it */
    uint64_t blocks;   /* live blocks in the main arena before the damage */
    uint64_t heap_bytes;
};

#define BLOCKS 3000
#define HEAP ((uintptr_t)64 << 20)

static struct record *record;
static char *blocks[3][BLOCKS];
static char *huge[3000];
static char *held[64];
static char *beside[3][64]; /* used blocks side by side, above all others */
static atomic_uint parked;
static int want_subheaps;

static void mix(unsigned thread)
{
    uint64_t random = 1000 + thread;
    unsigned i;

    for (i = 0; i < BLOCKS; i++)
        blocks[thread][i] = malloc(stage_request(&random) % 9000 + 1100); /* beyond cache and fastbins */
    for (i = 0; i < BLOCKS; i += 2) {
        free(blocks[thread][i]);
        blocks[thread][i] = NULL;
    }
    for (i = 0; i < 64; i++)
        beside[thread][i] = malloc(60000 + 16 * i); /* larger than any free chunk, so cut from top */
    stage_sort(); /* sorts what is unsorted into bins */
}

static void *work(void *argument)
{
    unsigned thread = (unsigned)(uintptr_t)argument, i;

    mix(thread);
    if (want_subheaps && thread == 1)
        for (i = 0; i < 1500; i++)
            huge[i] = malloc(100000);
    atomic_fetch_add(&parked, 1);
    for (;;)
        pause();
    return NULL;
}

/* Sixteen small blocks of one size, freed: seven in the cache, nine in a fastbin; without fastbins (glibc 2.43) all in the cache. */
static void small_ones(void)
{
    unsigned i;

    for (i = 0; i < 16; i++)
        held[i] = malloc(40);
    for (i = 0; i < 16; i++)
        free(held[i]);
}

/* Small bins with several chunks, an unsorted bin with several, and mapped chunks. */
static void rich(void)
{
    static char *small[64], *mapped[2];
    unsigned i;

    for (i = 0; i < 64; i++)
        small[i] = malloc(600);
    for (i = 0; i < 64; i += 2)
        free(small[i]);
    stage_sort();
    for (i = 0; i < 2; i++)
        mapped[i] = malloc(((size_t)i + 1) << 20);
    if (!mapped[0] || !mapped[1])
        stage_fail("no memory");
}

static void overwrite(void *address, uint64_t value)
{
    record->address = (uint64_t)(uintptr_t)address;
    record->bytes = 8;
    *(uint64_t *)address = value;
}

/* A link as malloc stores it: safe-linking came with glibc 2.32. */
static uint64_t protect(void *field, void *value)
{
#if __GLIBC_PREREQ(2, 32)
    return ((uint64_t)(uintptr_t)field >> 12) ^ (uint64_t)(uintptr_t)value;
#else
    (void)field;
    return (uint64_t)(uintptr_t)value;
#endif
}

static void unmap(uintptr_t address, size_t bytes)
{
    record->address = address;
    record->bytes = bytes;
    if (munmap((void *)address, bytes) != 0)
        stage_fail("munmap failed");
}

static void break_it(const char *kind)
{
    char *middle = blocks[0][BLOCKS / 2 + 1], *above = blocks[0][BLOCKS / 2 + 5];
    uint64_t *chunk;
    unsigned i;

    for (i = 101; i < 1000 && !strcmp(kind, "rich"); i += 200)
        free(blocks[0][i]);
    if (!strcmp(kind, "none") || !strcmp(kind, "rich"))
        return;
    if (!strcmp(kind, "size"))
        overwrite(middle - 8, 0x4141414141414141ULL);
    else if (!strcmp(kind, "size-thread"))
        overwrite(blocks[1][BLOCKS / 2 + 1] - 8, 0x4141414141414141ULL);
    else if (!strcmp(kind, "bin-cycle") || !strcmp(kind, "bin-wild")) {
        free(blocks[0][BLOCKS / 2 - 1]);
        free(blocks[0][BLOCKS / 2 + 3]);
        /* The free chunk just below this used one, found by its prev_size; it is in the unsorted bin. */
        chunk = (uint64_t *)(above - 16 - *(uint64_t *)(above - 16));
        overwrite(&chunk[2], !strcmp(kind, "bin-cycle") ? (uint64_t)(uintptr_t)chunk : 0x4242424242424240ULL);
    } else if (!strcmp(kind, "fast-cycle"))
        overwrite(held[9], protect(held[9], mallinfo2().smblks ? held[15] - 16 : held[15]));
    else if (!strcmp(kind, "tcache-cycle"))
        overwrite(held[1], protect(held[1], held[5]));
    else if (!strcmp(kind, "tcache-wild"))
        overwrite(held[3], protect(held[3], (void *)0x434343434340));
    else if (!strcmp(kind, "top-size")) {
        char *last = malloc(110000); /* larger than any free chunk, so cut from top: top follows it */

        overwrite(last + malloc_usable_size(last), 0x4444444444444444ULL);
    } else if (!strcmp(kind, "unmap-heap"))
        unmap((uintptr_t)blocks[1][1] & ~(HEAP - 1), record->heap_bytes);
    else if (!strcmp(kind, "unmap-subheap"))
        unmap((uintptr_t)huge[1100] & ~(HEAP - 1), HEAP);
    else if (!strcmp(kind, "unmap-page"))
        unmap((uintptr_t)blocks[1][BLOCKS / 2 + 1] & ~(uintptr_t)4095, 4096);
    else
        stage_fail("no such kind of damage");
}

int main(int argc, char **argv)
{
    unsigned i;

    if (argc != 3)
        stage_fail("usage: damage RECORD KIND");
    record = stage_record(argv[1], sizeof *record);
    record->heap_bytes = HEAP;
    want_subheaps = strstr(argv[2], "heap") != NULL;
    for (i = 1; i < 3; i++) {
        pthread_t id;

        if (pthread_create(&id, NULL, work, (void *)(uintptr_t)i) != 0)
            stage_fail("a thread cannot be made");
    }
    mix(0);
    if (!strcmp(argv[2], "rich"))
        rich();
    small_ones();
    while (atomic_load(&parked) != 2)
        usleep(1000);
    for (i = 0; i < BLOCKS; i++)
        record->blocks += blocks[0][i] != NULL;
    break_it(argv[2]);
    stage_ready(1);
    for (;;)
        stage_command();
}
