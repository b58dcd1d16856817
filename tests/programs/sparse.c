/* sparse RECORD GIB: a mapped chunk, and beside it a reserve of so many GiB of which no page was ever touched. */

#define _GNU_SOURCE
#include "stage.h"

int main(int argc, char **argv)
{
    if (argc != 3)
        stage_fail("usage: sparse RECORD GIB");
    uint64_t *record = stage_record(argv[1], 8);
    const size_t reserve = (size_t)atol(argv[2]) << 30;
    char *block = malloc(8 << 20);
    memset(block, 1, 8 << 20);
    char *page = (char *)((uintptr_t)block & ~(uintptr_t)4095);
    if (mmap(page - reserve, reserve, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0) == MAP_FAILED)
        stage_fail("mmap");
    record[0] = (uintptr_t)block;
    stage_ready(1);
    for (;;)
        stage_command();
}
