/* shared RECORD: 100 blocks of 200 bytes that only 8 MiB of shared memory points to. The record has the place and the size of the latter. */

#include "stage.h"
#include <sys/mman.h>

#define BLOCKS 100
#define SHARED_BYTES ((size_t)8 << 20)
#define PAGE_BYTES 4096

static char *shared;

int main(int argc, char **argv)
{
    uint64_t *record;
    size_t i;

    if (argc != 2)
        stage_fail("usage: shared RECORD");
    record = stage_record(argv[1], 2 * sizeof *record);
    shared = mmap(NULL, SHARED_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        stage_fail("no memory");
    memset(shared, 1, SHARED_BYTES);
    for (i = 0; i < BLOCKS; i++)
        *(char **)(shared + i * PAGE_BYTES) = memset(malloc(200), 2, 200);
    record[0] = (uint64_t)(uintptr_t)shared;
    record[1] = SHARED_BYTES;
    stage_deepen();
    for (;;) {
        stage_ready(1);
        stage_command();
    }
}
