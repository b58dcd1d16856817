/* wide RECORD: 2 GiB of zeroed variables of which one page in the middle was written, and 64 blocks. */

#include "stage.h"

static volatile char wide[2UL << 30];
static void *volatile kept[64];

int main(int argc, char **argv)
{
    if (argc != 2)
        stage_fail("usage: wide RECORD");
    stage_record(argv[1], 8);
    wide[sizeof wide / 2] = 1;
    for (size_t bytes = 1; bytes < 4096; bytes += 64)
        kept[bytes / 64] = malloc(bytes);
    stage_ready(1);
    for (;;)
        stage_command();
}
