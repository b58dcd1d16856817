/* je_huge RECORD MALLOCS: 20,000 large blocks that are not touched, of which each hundredth stays; only these are written to.

   Run with thp:always and dirty_decay_ms:0: each write brings in a huge page, most of which jemalloc has given back. The record
   holds the bytes that stay. */

#include "je_stage.h"

#define BYTES 40000

int main(int argc, char **argv)
{
    uint64_t *record, number, mallocs = argc == 3 ? strtoull(argv[2], NULL, 10) : 0;
    void **blocks;

    if (!mallocs)
        stage_fail("usage: je_huge RECORD MALLOCS");
    je_start();
    record = stage_record(argv[1], sizeof *record);
    blocks = stage_pages(mallocs * sizeof *blocks);
    for (number = 0; number < mallocs; number++)
        blocks[number] = malloc(BYTES);
    for (number = 0; number < mallocs; number++)
        if (number % 100)
            free(blocks[number]);
    for (number = 0; number < mallocs; number += 100) {
        memset(blocks[number], 1, BYTES);
        record[0] += malloc_usable_size(blocks[number]);
    }
    stage_ready(1);
    for (;;)
        stage_command();
}
