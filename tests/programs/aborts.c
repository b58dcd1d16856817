/* aborts KIND

   Damages its own heap in one place and goes on until malloc itself notices, says so, and aborts.

   KIND: unsorted-size, unsorted-links, prev-size, top-size, double-free (of a chunk that a thread's cache holds), mapped (with the two words
   of the header of a block of 2 MiB). */

#include <malloc.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static void *volatile kept[8];

static int is(const char *kind, const char *other)
{
    return !strcmp(kind, other);
}

int main(int argc, char **argv)
{
    const char *kind = argc > 1 ? argv[1] : "";
    char *volatile before = malloc(2000), *volatile hurt = malloc(3000);
    unsigned i;

    kept[0] = malloc(30); /* no neighbour of top */
    if (is(kind, "mapped") && argc == 4) {
        volatile uint64_t *block = malloc(2 << 20);

        block[-2] = strtoull(argv[2], NULL, 0);
        block[-1] = strtoull(argv[3], NULL, 0);
        free((void *)block);
        return 0;
    }
    if (is(kind, "unsorted-size")) {
        free(hurt);
        for (i = 0; i < 2016; i++)
            ((volatile char *)before)[i] = 0x41;
    } else if (is(kind, "unsorted-links")) {
        free(hurt);
        *(uint64_t *)(void *)hurt = 0x4140;
    } else if (is(kind, "prev-size")) {
        size_t usable = malloc_usable_size(hurt);

        free(hurt);
        kept[1] = malloc(5000); /* sorts it into its bin */
        *(uint64_t *)(void *)(hurt + usable - 8) += 16;
        kept[2] = malloc(2900);
    } else if (is(kind, "top-size")) {
        char *volatile last = malloc(100000);

        *(uint64_t *)(void *)(last + malloc_usable_size(last)) = 0x4141414141414140;
        kept[1] = malloc(120000);
    } else if (is(kind, "double-free")) {
        char *volatile one = malloc(100), *volatile two = malloc(100);

        free(one);
        free(two);
#if __GLIBC_PREREQ(2, 32)     /* links are mangled with their own place */
        *(volatile uint64_t *)(void *)one = (uint64_t)(uintptr_t)one >> 12 ^ (uint64_t)(uintptr_t)two;
#else
        *(volatile uint64_t *)(void *)one = (uint64_t)(uintptr_t)two;
#endif
        free(two);
    }
    kept[3] = malloc(9000);
    return 0;
}
