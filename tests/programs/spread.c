/* spread RECORD BLOCKS FREED: so many blocks of 100 KiB in the main arena, of which every eighth is kept and written; FREED is 1: the others
   are written as well before they are freed, so that their pages were the program's once.

   Run with glibc.malloc.hugetlb=1 and a top_pad that has room for all of them: one growth, on huge pages. The record holds nothing. */

#include "stage.h"

#define BYTES (100 << 10)

int main(int argc, char **argv)
{
    if (argc != 4)
        stage_fail("usage: spread RECORD BLOCKS FREED");
    stage_record(argv[1], sizeof(uint64_t));
    const int count = atoi(argv[2]);
    char **all = stage_pages(count * sizeof *all);

    for (int number = 0; number < count; number++) {
        all[number] = malloc(BYTES);
        if (number % 8 == 0 || argv[3][0] == '1')
            memset(all[number], 1, BYTES);
    }
    for (int number = 0; number < count; number++)
        if (number % 8)
            free(all[number]);
    stage_ready(1);
    for (;;)
        stage_command();
}
