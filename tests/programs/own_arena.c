/* own_arena RECORD: 24 MB of objects in regions of its own, of which it has lost all but the first; malloc has next to nothing. */

#include "stage.h"

enum { REGION = 8 << 20, STEP = 64 };

int main(int argc, char **argv)
{
    static char *regions[3];
    if (argc != 2)
        stage_fail("usage: own_arena RECORD");
    for (int i = 0; i < 3; i++) {
        regions[i] = stage_pages(REGION);
        for (size_t at = 0; at < REGION; at += STEP) {
            *(void **) (regions[i] + at) = at ? regions[i] + at - STEP : NULL;
            strcpy(regions[i] + at + sizeof(void *), "object");
        }
    }
    regions[1] = regions[2] = NULL;
    stage_record(argv[1], 8);
    stage_ready(1);
    for (;;)
        stage_command();
}
