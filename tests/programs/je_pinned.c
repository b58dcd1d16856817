/* je_pinned RECORD

   After 5.3.1: an arena whose extent hook says of each second mapping that it can never be returned (EXTENT_ALLOC_FLAG_PINNED), with blocks of
   all sizes, of which two thirds are freed again. The record's words: the arena, then its `pinned`, `pdirty` in pages and `mapped` as
   mallctl has them. */

#include "je_stage.h"
#include <stdbool.h>
#include <sys/mman.h>

#define BLOCKS 600
#define PINNED ((uintptr_t)1)
#define MAPPING_BYTES ((size_t)2 << 20)

/* extent_hooks_t: only the first may not be null. */
struct hooks {
    void *(*alloc)(struct hooks *, void *, size_t, size_t, bool *, bool *, unsigned);
    bool (*dalloc)(struct hooks *, void *, size_t, bool, unsigned);
    void (*destroy)(struct hooks *, void *, size_t, bool, unsigned);
    bool (*commit)(struct hooks *, void *, size_t, size_t, size_t, unsigned);
    bool (*decommit)(struct hooks *, void *, size_t, size_t, size_t, unsigned);
    bool (*purge_lazy)(struct hooks *, void *, size_t, size_t, size_t, unsigned);
    bool (*purge_forced)(struct hooks *, void *, size_t, size_t, size_t, unsigned);
    bool (*split)(struct hooks *, void *, size_t, size_t, size_t, bool, unsigned);
    bool (*merge)(struct hooks *, void *, size_t, void *, size_t, bool, unsigned);
};

static void *map(struct hooks *hooks, void *wanted, size_t size, size_t alignment, bool *zero, bool *commit, unsigned arena)
{
    static unsigned calls;
    char *memory;
    size_t room = size + (alignment > MAPPING_BYTES ? alignment : MAPPING_BYTES);
    uintptr_t begin;

    (void)hooks, (void)arena;
    if (wanted)
        return NULL;
    memory = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return NULL;
    if (alignment < MAPPING_BYTES)
        alignment = MAPPING_BYTES;
    begin = ((uintptr_t)memory + alignment - 1) & ~(alignment - 1);
    *zero = true;
    *commit = true;
    return (void *)(begin | (calls++ % 2 ? PINNED : 0));
}

static bool split(struct hooks *hooks, void *memory, size_t size, size_t first, size_t second, bool committed, unsigned arena)
{
    (void)hooks, (void)memory, (void)size, (void)first, (void)second, (void)committed, (void)arena;
    return false;
}

static bool keep(struct hooks *hooks, void *memory, size_t size, bool committed, unsigned arena)
{
    (void)hooks, (void)memory, (void)size, (void)committed, (void)arena;
    return true;
}

static struct hooks hooks = {map, keep, NULL, NULL, NULL, NULL, NULL, split, NULL};

int main(int argc, char **argv)
{
    static struct je_block *mine[BLOCKS];
    struct hooks *own = &hooks;
    ssize_t never = -1;
    size_t value, length = sizeof(unsigned);
    unsigned arena, i;
    uint64_t random = 88172645463325252ULL;

    if (argc < 2)
        stage_fail("usage: je_pinned RECORD");
    je_start();
    je_open_record(argv[1], 2 * BLOCKS);
    if (je_mallctl("arenas.create", &arena, &length, &own, sizeof own) != 0)
        stage_fail("no arena");
    je_write(je_name("arena.%u.dirty_decay_ms", arena), &never, sizeof never);
    for (i = 0; i < BLOCKS; i++) {
        size_t size = i % 10 ? stage_request(&random) : 65536 * (1 + stage_random(&random) % 16);

        mine[i] = je_keep(je_mallocx(size, JE_ARENA(arena) | JE_NO_TCACHE), size);
    }
    for (i = 0; i < BLOCKS; i++)
        if (i % 3)
            je_drop(mine[i], JE_NO_TCACHE, JE_FREED);
    je_print_stats(0);
    je_epoch();
    je_record->words[0] = arena;
    je_read(je_name("stats.arenas.%u.pinned", arena), &value, sizeof value);
    je_record->words[1] = value;
    je_read(je_name("stats.arenas.%u.pdirty", arena), &value, sizeof value);
    je_record->words[2] = value;
    je_read(je_name("stats.arenas.%u.mapped", arena), &value, sizeof value);
    je_record->words[3] = value;
    stage_ready(1);
    for (;;)
        stage_command();
}
