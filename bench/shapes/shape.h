/* What the shapes share: the record, a clock in the process itself, and how they wait.

   A shape reaches its state, says "ready" and sleeps in read(2): nothing of it runs, so whatever changes in it comes from who looks.
   `g` on standard input has a thread read the clock without a pause and keep the longest time that passed between two readings: a stop
   as the process itself sees it; `e` has it sleep again. Each is answered by "ready". End of file ends the process.

   mallinfo2's figures stand in the record, taken in the end: what the tool says is held against them. */

#ifndef SHAPE_H
#define SHAPE_H

#include "../../tests/programs/stage.h"
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

struct shape_record {
    _Atomic uint64_t longest_gap_ns;
    uint64_t system_bytes, free_chunks_and_tops, fast_chunks, mapped_chunks, brk_bytes;
};

static struct shape_record *shape_record;
static char *shape_first_break;
static atomic_int shape_watching;
static int shape_wake[2];

static inline uint64_t shape_now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static void *shape_watch(void *unused)
{
    char byte;

    (void)unused;
    while (read(shape_wake[0], &byte, 1) == 1) {
        uint64_t last = shape_now();

        while (atomic_load_explicit(&shape_watching, memory_order_relaxed)) {
            uint64_t next = shape_now();

            if (next - last > atomic_load_explicit(&shape_record->longest_gap_ns, memory_order_relaxed))
                atomic_store(&shape_record->longest_gap_ns, next - last);
            last = next;
        }
    }
    return NULL;
}

/* A thread that calls no malloc, with a stack of `bytes`. */
static inline void shape_thread(void *(*run)(void *), void *argument, size_t bytes)
{
    pthread_attr_t attributes;
    pthread_t id;

    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, bytes);
    if (pthread_create(&id, &attributes, run, argument) != 0)
        stage_fail("a thread cannot be made");
}

/* First: the record, and the thread that watches the clock, while nothing is large. */
static inline void shape_begin(const char *path)
{
    shape_record = stage_record(path, sizeof *shape_record);
    shape_first_break = sbrk(0);
    if (pipe(shape_wake) != 0)
        stage_fail("no pipe");
    shape_thread(shape_watch, NULL, 65536);
}

/* Last: what malloc itself says of the state, and waits for good. */
static inline void shape_serve(void)
{
    struct mallinfo2 info = mallinfo2();

    shape_record->system_bytes = info.arena;
    shape_record->free_chunks_and_tops = info.ordblks;
    shape_record->fast_chunks = info.smblks;
    shape_record->mapped_chunks = info.hblks;
    shape_record->brk_bytes = (uint64_t)((char *)sbrk(0) - shape_first_break);
    stage_ready(1);
    for (;;) {
        int watch = stage_command() == 'g';

        atomic_store(&shape_record->longest_gap_ns, 0);
        atomic_store(&shape_watching, watch);
        if (watch && write(shape_wake[1], "w", 1) != 1)
            stage_fail("no pipe");
        stage_ready(1);
    }
}

/* Puts `count` pointers into an order without any. */
static inline void shape_shuffle(void **blocks, uint64_t count)
{
    uint64_t random = 4711, i;

    for (i = count - 1; i > 0; i--) {
        uint64_t j = stage_random(&random) % (i + 1);
        void *other = blocks[j];

        blocks[j] = blocks[i];
        blocks[i] = other;
    }
}

#endif
