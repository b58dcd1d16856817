/* kept RECORD: 20 MB from malloc, half of it freed (or none of it, with NEVER_FREES), with nothing but what every C library has; of the others' programs it knows nothing. */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(void)
{
    static char *kept[2000];
    char byte;
    int number;

    for (number = 0; number < 2000; number++) {
        kept[number] = malloc(10000);
        memset(kept[number], 1, 10000);
#ifndef NEVER_FREES
        if (number % 2)
            free(kept[number]);
#endif
    }
    errno = 0;
    perror("so far");
    puts("ready");
    fflush(stdout);
    return read(0, &byte, 1) != 1;
}
