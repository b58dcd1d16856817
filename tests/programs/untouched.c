/* untouched RECORD: a program that never calls malloc; the arena is as the loader left it. */

#include "stage.h"

int main(int argc, char **argv)
{
    if (argc != 2)
        stage_fail("usage: untouched RECORD");
    stage_record(argv[1], 8);
    stage_ready(1);
    for (;;)
        stage_command();
}
