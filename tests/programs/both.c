/* both RECORD: a table of 20,000 blocks that two variables hold. */

#include "stage.h"

#define BLOCKS 20000

void **volatile by_one, **volatile by_other;

int main(void)
{
    void **table = calloc(BLOCKS, sizeof *table);
    for (size_t i = 0; i < BLOCKS; i++)
        table[i] = memset(malloc(200), 'x', 200);
    by_one = by_other = table;
    stage_ready(1);
    for (;;)
        stage_command();
}
