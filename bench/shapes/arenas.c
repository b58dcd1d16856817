/* arenas RECORD ARENAS KIB: ARENAS arenas, the main one among them, each of a thread that lives, with about KIB kibibytes of blocks of 1
   to 1000 bytes, every other of them freed. */

#include "shape.h"

static atomic_uint done;
static uint64_t bytes;

static void fragment(uint64_t seed)
{
    uint64_t random = seed * 7919 + 1, total = 0, count = 0;
    void **blocks = stage_pages(bytes);

    while (total < bytes) {
        size_t size = 1 + stage_random(&random) % 1000;

        blocks[count] = malloc(size);
        if (!blocks[count])
            stage_fail("out of memory");
        total += size;
        count++;
    }
    while (count-- > 0)
        if (count % 2)
            free(blocks[count]);
    munmap(blocks, bytes);
}

static void *work(void *argument)
{
    fragment((uint64_t)(uintptr_t)argument);
    atomic_fetch_add(&done, 1);
    for (;;)
        pause();
    return NULL;
}

int main(int argc, char **argv)
{
    unsigned arenas, i;

    if (argc != 4)
        stage_fail("usage: arenas RECORD ARENAS KIB");
    shape_begin(argv[1]);
    arenas = (unsigned)atoi(argv[2]);
    bytes = strtoull(argv[3], NULL, 10) << 10;
    mallopt(M_ARENA_MAX, (int)arenas);
    for (i = 1; i < arenas; i++) {
        shape_thread(work, (void *)(uintptr_t)i, 65536);
        while (atomic_load(&done) != i) /* one after the other, so that each gets an arena of its own */
            usleep(100);
    }
    fragment(0);
    shape_serve();
}
