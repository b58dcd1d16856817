/* pieces RECORD CHUNKS [block]: a main arena of CHUNKS free chunks of 100 to 900 bytes, none beside another, in many pieces that are not contiguous: malloc
   cannot have it by the program break. `block`: because a page of the program's lies where the break would grow to; else the caller has
   seen to it, by glibc.malloc.hugetlb=2 where no huge pages are reserved. */

#include "shape.h"

static void block_break(void)
{
    char *end = (char *)(((uintptr_t)sbrk(0) + 4095) & ~(uintptr_t)4095);

    if (mmap(end, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) != (void *)end)
        stage_fail("the break cannot be blocked");
}

int main(int argc, char **argv)
{
    uint64_t chunks, random = 17, i;
    void **blocks;

    if (argc < 3)
        stage_fail("usage: pieces RECORD CHUNKS [block]");
    shape_begin(argv[1]);
    if (argc > 3)
        block_break();
    chunks = strtoull(argv[2], NULL, 10);
    blocks = stage_pages(chunks * sizeof *blocks);
    for (i = 0; i < chunks; i++) {
        void *volatile between;

        blocks[i] = malloc(100 + stage_random(&random) % 800);
        between = malloc(100 + stage_random(&random) % 800);
        if (!blocks[i] || !between)
            stage_fail("out of memory");
    }
    shape_shuffle(blocks, chunks);
    for (i = 0; i < chunks; i++)
        free(blocks[i]);
    munmap(blocks, chunks * sizeof *blocks);
    stage_sort();
    shape_serve();
}
