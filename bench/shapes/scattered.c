/* scattered RECORD MEMBERS SMALLEST LARGEST: MEMBERS free chunks on lists of the main arena, in random order, none beside another: of
   SMALLEST to LARGEST bytes each, as many again are in use between them.

   Which lists: up to 120 bytes fastbins, above the unsorted list, as nothing is asked of malloc afterwards. Started with
   glibc.malloc.tcache_count=0, so that all of them get there. */

#include "shape.h"

int main(int argc, char **argv)
{
    uint64_t members, smallest, largest, random = 17, i;
    void **blocks;

    if (argc != 5)
        stage_fail("usage: scattered RECORD MEMBERS SMALLEST LARGEST");
    shape_begin(argv[1]);
    members = strtoull(argv[2], NULL, 10);
    smallest = strtoull(argv[3], NULL, 10);
    largest = strtoull(argv[4], NULL, 10);
    blocks = stage_pages(members * sizeof *blocks);
    for (i = 0; i < members; i++) {
        void *volatile between;

        blocks[i] = malloc(smallest + stage_random(&random) % (largest - smallest + 1));
        between = malloc(smallest);
        if (!blocks[i] || !between)
            stage_fail("out of memory");
    }
    shape_shuffle(blocks, members);
    for (i = 0; i < members; i++)
        free(blocks[i]);
    munmap(blocks, members * sizeof *blocks);
    shape_serve();
}
