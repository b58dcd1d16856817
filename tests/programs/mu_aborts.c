/* mu_aborts KIND: what musl's malloc itself stops: a block that was written past, or one that is freed twice. */

#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv)
{
    char *volatile block = malloc(40), *volatile beside = malloc(40);

    if (argc < 2)
        return 1;
    if (!strcmp(argv[1], "overrun"))
        block[40] = 'A';
    if (!strcmp(argv[1], "double-free"))
        free(block);
    free(block);
    free(beside);
    return 0;
}
