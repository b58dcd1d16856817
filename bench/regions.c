/* regions OBJECTS

   A heap of jemalloc with at least five sixths of OBJECTS regions in use: blocks of 1 to 344 bytes, of which every sixth on average is
   freed. Says "ready USED" on standard output, USED the number of blocks that are left, and waits; end of file on standard input ends it. */

#include "../tests/programs/stage.h"

int main(int argc, char **argv)
{
    uint64_t objects = argc > 1 ? strtoull(argv[1], NULL, 10) : 0, random = 7919, left = 0, i;
    void **blocks = stage_pages(objects * sizeof *blocks);
    char line[16];

    for (i = 0; i < objects; i++) {
        size_t size = 1 + stage_random(&random) % 344;

        blocks[i] = malloc(size);
        if (!blocks[i])
            stage_fail("out of memory");
        memset(blocks[i], 0x11, size);
    }
    for (i = 0; i < objects; i++) {
        if (stage_random(&random) % 6 == 0)
            free(blocks[i]);
        else
            left++;
    }
    munmap(blocks, objects * sizeof *blocks);
    dprintf(1, "ready %llu\n", (unsigned long long)left);
    while (read(0, line, sizeof line) > 0)
        ;
    return 0;
}
