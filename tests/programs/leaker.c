/* leaker RECORD: 60,000 blocks of 340 bytes that nobody will ever free, among others that live and die. */

#include "stage.h"

int main(int argc, char **argv)
{
    uint64_t random = 3;
    unsigned i;
    static void *volatile slots[64];

    if (argc != 2)
        stage_fail("usage: leaker RECORD");
    stage_record(argv[1], 8);
    for (i = 0; i < 60000; i++) {
        void *volatile lost = malloc(340);

        memset(lost, 1, 340);
        free(slots[i % 64]);
        slots[i % 64] = malloc(stage_request(&random) % 500);
    }
    stage_ready(1);
    for (;;)
        stage_command();
}
