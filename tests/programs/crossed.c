/* crossed RECORD: 20,000 blocks that two tables hold, in different orders: neither retains them. */

#include "stage.h"

#define BLOCKS 20000

void *volatile by_number[BLOCKS], *volatile by_age[BLOCKS];

int main(void)
{
    for (size_t i = 0; i < BLOCKS; i++) {
        void *block = memset(malloc(200), 'x', 200);
        by_number[i] = block;
        by_age[(i * 7919) % BLOCKS] = block;
    }
    stage_ready(1);
    for (;;)
        stage_command();
}
