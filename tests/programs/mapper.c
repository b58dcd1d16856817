/* mapper RECORD: 64 MiB of the program's own anonymous memory, and next to nothing from malloc. */

#include "stage.h"

int main(int argc, char **argv)
{
    char *volatile little;

    if (argc != 2)
        stage_fail("usage: mapper RECORD");
    stage_record(argv[1], 8);
    little = malloc(1000);
    memset(little, 1, 1000);
    memset(stage_pages((size_t)64 << 20), 2, (size_t)64 << 20);
    stage_ready(1);
    for (;;)
        stage_command();
}
