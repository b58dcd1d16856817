/* mi_beside RECORD LIBRARY: the C library owns malloc, and a mimalloc that was loaded later is used beside it. Blocks of both lead to each
   other: COUNT chains table, its block, the C library's block are held; LOST chains begin in each heap, lead into the other, and are lost. */

#include "stage.h"
#include <dlfcn.h>

#define COUNT 5000u
#define LOST 300u

typedef void *allocate(size_t);

static void **volatile table;

__attribute__((noinline)) static void *chain(allocate *first, allocate *second)
{
    void **block = first(200), *next = second(100);

    if (!block || !next)
        stage_fail("out of memory");
    memset(block, 0, 200);
    memset(next, 0, 100);
    *block = next;
    return block;
}

__attribute__((noinline)) static void work(allocate *own)
{
    char *large = own((size_t)32 << 20);
    unsigned i;

    if (!large)
        stage_fail("out of memory");
    memset(large, 1, (size_t)32 << 20);
    table = calloc(COUNT + 1, sizeof *table);
    table[COUNT] = large;
    for (i = 0; i < COUNT; i++) {
        table[i] = chain(own, malloc);
        if (i < LOST) {
            chain(own, malloc);
            chain(malloc, own);
        }
    }
}

int main(int argc, char **argv)
{
    void *library = argc == 3 ? dlopen(argv[2], RTLD_NOW | RTLD_LOCAL) : NULL;
    allocate *own = library ? (allocate *)dlsym(library, "mi_malloc") : NULL;
    uint64_t *header;

    if (!own)
        stage_fail("usage: mi_beside RECORD LIBRARY");
    header = stage_record(argv[1], 4096);
    header[0] = 2 * LOST;
    work(own);
    stage_ready(1);
    for (;;)
        stage_command();
}
