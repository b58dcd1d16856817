/* touching RECORD SEED: 48,000 blocks of 16 to 4,096 bytes in runs of one fate: never touched again, read, or written to, once each 20 ms.

   The record is an array of struct touched, of which the first has the number of the others. */

#include "stage.h"

#include <poll.h>

#define BLOCKS 48000u

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
    struct pollfd quit = {0, POLLIN, 0};
    volatile unsigned char sum = 0;

    if (argc < 3)
        stage_fail("usage: touching RECORD SEED");
    record = stage_record(argv[1], (BLOCKS + 1) * sizeof *record);
    state = strtoull(argv[2], NULL, 10);
    for (uint32_t at = 1; at <= BLOCKS;) {
        uint32_t fate = chance(3), length = 200 + chance(1800);
        for (; length && at <= BLOCKS; length--, at++) {
            uint32_t bytes = 16u << chance(9);
            bytes += bytes < 4096 ? chance(bytes) : 0;
            record[at] = (struct touched){(uint64_t)(uintptr_t)malloc(bytes), bytes, fate};
            memset((void *)(uintptr_t)record[at].address, 1, bytes);
        }
    }
    record[0].address = BLOCKS;
    if (write(1, "ready\n", 6) != 6)
        return 1;
    while (poll(&quit, 1, 20) == 0)
        for (uint32_t at = 1; at <= BLOCKS; at++) {
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
