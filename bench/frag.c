/* frag RECORD OBJECTS ARENAS [gaps]

   Each of ARENAS arenas (1: the main thread alone) gets OBJECTS blocks of 1 to 214 bytes, of which half are freed in random
   order: 0.75 chunks and 123 heap bytes for each object, no free chunk as large as a page. Says "ready" on standard output and
   waits; end of file on standard input ends it.

   gaps: another thread reads the clock without a pause and keeps in the record the longest time that passed between two
   readings: a stop of the process as the process itself sees it. The command `z` sets it back to 0. */

#include "../tests/programs/stage.h"
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

struct record {
    _Atomic uint64_t longest_gap_ns;
    _Atomic uint64_t readings;
};

static struct record *record;
static uint64_t objects;
static atomic_uint done;

static void fragment(uint64_t seed)
{
    uint64_t random = seed * 7919 + 1, i;
    void **blocks = stage_pages(objects * sizeof *blocks);

    for (i = 0; i < objects; i++) {
        size_t size = 1 + stage_random(&random) % 214;

        blocks[i] = malloc(size);
        if (!blocks[i])
            stage_fail("out of memory");
        memset(blocks[i], 0x11, size);
    }
    for (i = objects - 1; i > 0; i--) {
        uint64_t j = stage_random(&random) % (i + 1);
        void *other = blocks[j];

        blocks[j] = blocks[i];
        blocks[i] = other;
    }
    for (i = 0; i < objects / 2; i++)
        free(blocks[i]);
    munmap(blocks, objects * sizeof *blocks);
    stage_sort(); /* leaves nothing in the fastbins, and sorts the rest into bins */
}

static void *work(void *argument)
{
    fragment((uint64_t)(uintptr_t)argument);
    atomic_fetch_add(&done, 1);
    for (;;)
        pause();
    return NULL;
}

static uint64_t now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static void *watch_clock(void *unused)
{
    uint64_t last = now();

    (void)unused;
    for (;;) {
        uint64_t next = now();

        if (next - last > atomic_load_explicit(&record->longest_gap_ns, memory_order_relaxed))
            atomic_store(&record->longest_gap_ns, next - last);
        atomic_fetch_add_explicit(&record->readings, 1, memory_order_relaxed);
        last = next;
    }
    return NULL;
}

int main(int argc, char **argv)
{
    unsigned arenas, i;
    pthread_t id;

    if (argc < 4)
        stage_fail("usage: frag RECORD OBJECTS ARENAS [gaps]");
    record = stage_record(argv[1], sizeof *record);
    objects = strtoull(argv[2], NULL, 10);
    arenas = (unsigned)atoi(argv[3]);
    for (i = 1; i < arenas; i++)
        if (pthread_create(&id, NULL, work, (void *)(uintptr_t)i) != 0)
            stage_fail("a thread cannot be made");
    fragment(0);
    while (atomic_load(&done) != arenas - 1)
        usleep(1000);
    if (argc > 4 && pthread_create(&id, NULL, watch_clock, NULL) != 0)
        stage_fail("a thread cannot be made");
    stage_ready(1);
    for (;;)
        if (stage_command() == 'z') {
            atomic_store(&record->longest_gap_ns, 0);
            stage_ready(1);
        }
}
