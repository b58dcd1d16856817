/* mapped RECORD CHUNKS: CHUNKS blocks of 4 KiB to 32 KiB that malloc mapped one by one, of which it has written the headers alone. */

#include "shape.h"

int main(int argc, char **argv)
{
    uint64_t chunks, random = 17, mapped = 0;

    if (argc != 3)
        stage_fail("usage: mapped RECORD CHUNKS");
    shape_begin(argv[1]);
    chunks = strtoull(argv[2], NULL, 10);
    mallopt(M_MMAP_THRESHOLD, 4096);
    mallopt(M_MMAP_MAX, (int)chunks + 1);
    while (mapped < chunks) { /* the first few come out of the arena's top */
        size_t *block = malloc(4096 + stage_random(&random) % 28000);

        if (!block)
            stage_fail("out of memory");
        mapped += block[-1] >> 1 & 1; /* IS_MMAPPED */
    }
    shape_serve();
}
