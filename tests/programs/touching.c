/* touching RECORD SEED [LARGE]: 48,000 blocks of 16 to 4,096 bytes in runs of one fate: never touched again, read, or written to, once
   each 20 ms. Before them so many large ones of 4 MiB, each in a mapping of its own, of the three fates in turn.

   The record is an array of struct touched, of which the first has the number of the others. */

#include "stage.h"

#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>

#define BLOCKS 48000u
#define LARGE (4u << 20)

struct touched {
    uint64_t address, bytes, fate;                  /* fate: 0 left alone, 1 read, 2 written to */
};

static uint64_t state;

static uint32_t chance(uint32_t below)
{
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)((state >> 33) % below);
}

int main(int argc, char **argv)
{
    struct touched *record;
    uint32_t large = argc > 3 ? (uint32_t)atoi(argv[3]) : 0;
    struct pollfd quit = {0, POLLIN, 0};
    volatile unsigned char sum = 0;

    if (argc < 3)
        stage_fail("usage: touching RECORD SEED");
    prctl(PR_SET_THP_DISABLE, 1ul, 0ul, 0ul, 0ul);      /* a huge page has one age */
    record = stage_record(argv[1], (large + BLOCKS + 1) * sizeof *record);
    state = strtoull(argv[2], NULL, 10);
    for (uint32_t at = 1; at <= large; at++) {
        record[at] = (struct touched){(uint64_t)(uintptr_t)malloc(LARGE), LARGE, (at - 1) % 3};
        memset((void *)(uintptr_t)record[at].address, 1, LARGE);
        uint64_t below = (record[at].address & -(uint64_t)65536) - 65536;    /* so that the next one does not join it */
        if (mmap((void *)(uintptr_t)below, 65536, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED)
            return 1;
    }
    for (uint32_t at = large + 1; at <= large + BLOCKS;) {
        uint32_t fate = chance(3), length = 200 + chance(1800);
        for (; length && at <= large + BLOCKS; length--, at++) {
            uint32_t bytes = 16u << chance(9);
            bytes += bytes < 4096 ? chance(bytes) : 0;
            record[at] = (struct touched){(uint64_t)(uintptr_t)malloc(bytes), bytes, fate};
            memset((void *)(uintptr_t)record[at].address, 1, bytes);
        }
    }
    record[0].address = large + BLOCKS;
    if (write(1, "ready\n", 6) != 6)
        return 1;
    while (poll(&quit, 1, 20) == 0)
        for (uint32_t at = 1; at <= large + BLOCKS; at++) {
            volatile unsigned char *block = (volatile unsigned char *)(uintptr_t)record[at].address;
            for (uint64_t byte = 0; record[at].fate && byte < record[at].bytes; byte += 16) {
                if (record[at].fate == 2)
                    block[byte]++;
                else
                    sum += block[byte];
            }
        }
    return 0;
}
