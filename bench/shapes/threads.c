/* threads RECORD THREADS SIZES EACH: THREADS threads that live, each of which freed EACH blocks of each of SIZES sizes (16 bytes apart, in
   random order), which fill its thread cache: 64 sizes and 7 of each are all that glibc's holds. */

#include "shape.h"

static atomic_uint done;
static unsigned sizes, each;

static void *work(void *argument)
{
    uint64_t random = (uint64_t)(uintptr_t)argument + 17;
    unsigned count = sizes * each, i;
    void **blocks = stage_pages(count * sizeof *blocks);

    for (i = 0; i < count; i++) {
        blocks[i] = malloc(24 + 16 * (i % sizes));
        if (!blocks[i])
            stage_fail("out of memory");
    }
    for (i = count - 1; i > 0; i--) {
        unsigned j = (unsigned)(stage_random(&random) % (i + 1));
        void *other = blocks[j];

        blocks[j] = blocks[i];
        blocks[i] = other;
    }
    for (i = 0; i < count; i++)
        free(blocks[i]);
    munmap(blocks, count * sizeof *blocks);
    atomic_fetch_add(&done, 1);
    for (;;)
        pause();
    return NULL;
}

int main(int argc, char **argv)
{
    unsigned threads, i;

    if (argc != 5)
        stage_fail("usage: threads RECORD THREADS SIZES EACH");
    shape_begin(argv[1]);
    threads = (unsigned)atoi(argv[2]);
    sizes = (unsigned)atoi(argv[3]);
    each = (unsigned)atoi(argv[4]);
    for (i = 0; i < threads; i++)
        shape_thread(work, (void *)(uintptr_t)i, 65536);
    while (atomic_load(&done) != threads)
        usleep(1000);
    shape_serve();
}
