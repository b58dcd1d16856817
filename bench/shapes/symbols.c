/* symbols RECORD: 50 MB of small blocks in a process that has loaded a library with large symbol tables (bench/shape_process.py makes it). */

#include "shape.h"

int main(int argc, char **argv)
{
    int i;

    if (argc != 2)
        stage_fail("usage: symbols RECORD");
    shape_begin(argv[1]);
    for (i = 0; i < 500000; i++) {
        char *volatile block = malloc(100);

        if (!block)
            stage_fail("out of memory");
        memset(block, 1, 100);
        if (i % 3 == 0)
            free(block);
    }
    shape_serve();
}
