/* leaky BLOCKS: one chain that is held, and as many blocks in chains and rings that nothing holds. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

struct link { struct link *next; long fill[17]; };

static struct link *volatile held;

static struct link *chain(size_t count, struct link *last)
{
    struct link *first = last;
    while (count--) {
        struct link *one = calloc(1, sizeof *one);
        one->next = first;
        first = one;
    }
    return first;
}

int main(int argc, char **argv)
{
    const size_t wanted = argc > 1 ? strtoul(argv[1], NULL, 0) : 1000;
    held = chain(wanted / 2, NULL);
    for (size_t made = 0; made < wanted / 2; made += 100) {
        struct link *last = calloc(1, sizeof *last), *first = chain(99, last);
        if (made % 200)
            last->next = first;
    }
    puts("ready");
    fflush(stdout);
    pause();
}
