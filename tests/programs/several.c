/* several RECORD LIBRARY...: a heap of glibc's and one of each library's malloc, in one process.

   Of every heap COUNT blocks are taken. Of four, one is freed, one is held by nothing, and two are held: block i of a heap by block i of the next
   one, and those of the last heap by a table in the program's data. The record has, for each heap from glibc's on, the address of each block that
   is not freed, all its bits turned, and whether it is held. */

#include "stage.h"

#include <dlfcn.h>

#define COUNT 4000
#define MOST 8

static void **held[COUNT];

struct heap {
    void *(*take)(size_t);
    void (*give)(void *);
};

static struct heap opened(const char *path)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
    struct heap made;

    if (!library)
        stage_fail(dlerror());
    *(void **)&made.take = dlsym(library, "malloc");
    *(void **)&made.give = dlsym(library, "free");
    return made;
}

int main(int argc, char **argv)
{
    struct heap heaps[MOST] = {{malloc, free}};
    int count = argc - 1;
    uint64_t *record = stage_record(argv[1], MOST * COUNT * 16 + 8);
    uintptr_t *hidden = stage_pages(COUNT * sizeof *hidden); /* of the blocks that are freed or dropped, in disguise */

    if (count > MOST)
        stage_fail("too many libraries");
    for (int at = 1; at < count; at++)
        heaps[at] = opened(argv[at + 1]);
    for (int at = 0; at < count; at++) {
        for (size_t i = 0; i < COUNT; i++) {
            size_t bytes = 16 + i % 37 * 24 + (i % 500 == 0 ? 300000 : 0);
            void **block = heaps[at].take(bytes);
            uint64_t *row = record + 1 + 2 * (at * COUNT + i);

            memset(block, 0, bytes);
            if (i % 4 < 2) {
                block[0] = held[i];
                held[i] = block;
            }
            hidden[i] = ~(uintptr_t)block;
            if (i % 4 != 2) {
                row[0] = ~(uintptr_t)block;
                row[1] = i % 4 < 2;
            }
        }
        for (size_t i = 2; i < COUNT; i += 4)
            heaps[at].give((void *)~hidden[i]);
        memset(hidden, 0, COUNT * sizeof *hidden);
    }
    record[0] = (uint64_t)count;
    stage_ready(1);
    for (;;)
        stage_command();
}
