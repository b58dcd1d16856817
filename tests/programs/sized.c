/* sized RECORD SHAPE COUNT: a heap of one shape, at rest. Shapes: `small`, COUNT blocks of 24 to 119 bytes in a chain, every fifth one freed;
   `large`, COUNT blocks of 1 MiB, all touched; `mappings`, COUNT mappings outside every heap, each of two with other permissions. */

#include "stage.h"

static void small(size_t count)
{
    char **kept = stage_pages((count + 1) * sizeof *kept);
    size_t i;

    for (i = 0; i < count; i++) {
        kept[i] = malloc(24 + i * 37 % 96);
        if (!kept[i])
            stage_fail("out of memory");
        memset(kept[i], 0, 24);
        if (i)
            memcpy(kept[i], &kept[i - 1], sizeof kept[i]);
    }
    for (i = 0; i < count; i += 5)
        free(kept[i]);
}

static void large(size_t count)
{
    static char *last;

    for (; count; count--) {
        char *block = malloc((size_t)1 << 20);

        if (!block)
            stage_fail("out of memory");
        memset(block, (int)count | 1, (size_t)1 << 20);
        memcpy(block, &last, sizeof last);
        last = block;
    }
}

static void mappings(size_t count)
{
    for (; count; count--) {
        size_t page = (size_t) sysconf(_SC_PAGESIZE);
        char *pages = stage_pages(2 * page);

        *pages = 1;
        if (mprotect(pages + page, page, PROT_READ) != 0)
            stage_fail("mprotect");
    }
}

int main(int argc, char **argv)
{
    if (argc != 4)
        stage_fail("usage: sized RECORD SHAPE COUNT");
    stage_record(argv[1], 8);
    (argv[2][0] == 's' ? small : argv[2][0] == 'l' ? large : mappings)(strtoul(argv[3], NULL, 10));
    stage_ready(1);
    for (;;)
        stage_command();
}
