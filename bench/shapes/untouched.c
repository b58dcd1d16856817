/* untouched RECORD GIB [below]: GIB gibibytes that are there and were never touched, half of them from calloc, half the program's own.
   `below`: these are mapped right below it, so that whoever looks for the block's header comes through them first. Beside them are 50 MB
   of blocks in use. */

#include "shape.h"

int main(int argc, char **argv)
{
    void *volatile kept;
    char *below;
    size_t half;
    int i;

    if (argc < 3)
        stage_fail("usage: untouched RECORD GIB");
    shape_begin(argv[1]);
    half = (size_t)strtoull(argv[2], NULL, 10) << 29;
    for (i = 0; i < 50000; i++) {
        kept = malloc(1000);
        if (!kept)
            stage_fail("out of memory");
        memset(kept, 1, 1000);
    }
    kept = calloc(1, half);
    if (!kept)
        stage_fail("no address space");
    below = (char *)(((uintptr_t)kept & ~(uintptr_t)4095) - half);
    if (argc == 3)
        stage_pages(half);
    else if (mmap(below, half, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) != below)
        stage_fail("no address space below the block");
    shape_serve();
}
