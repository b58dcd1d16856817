/* standing RECORD KIND BYTES: a heap of BYTES that watches its own clock, and writes to itself at a rate.

   large: blocks of 64 KiB; small: of 24 to 136 bytes; holes: such ones, every second of them free; runs: such ones, 64 free after 64 in use;
   fast: of 24 to 104 bytes, every second of them in a fastbin.
   Every block is held: heads of chains of 1,000 hold each other.

   A thread that wakes each 50 us keeps how long it did not run: SCHED_FIFO where it may. `0`, `1`, `2` on standard input set the record back
   and have another thread write to 0, 1,000 or 20,000 random pages a second; each is answered by "ready". */

#include "../../tests/programs/stage.h"
#include <malloc.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <time.h>

#define PAUSE_NS 50000
#define GAP_NS 1000000 /* the shortest that counts as a stop in the sum */
#define CHAIN 1000
#define RUN 64

struct record {
    _Atomic uint64_t longest_gap_ns, all_gaps_ns, gaps, longest_write_ns, writes;
    uint64_t is_fifo;
};

struct block {
    struct block *next, *chain;
    _Atomic uint64_t written;
};

static struct record *record;
static struct block *chains, *spare;
static struct block **in_page; /* one block of each page: what is written to */
static uint64_t pages;
static _Atomic uint64_t rate;

static uint64_t now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static void wait_ns(uint64_t ns)
{
    struct timespec t = {(time_t)(ns / 1000000000), (long)(ns % 1000000000)};

    nanosleep(&t, NULL);
}

static int be_fifo(int priority)
{
    struct sched_param wanted = {.sched_priority = priority};

    prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0);
    return pthread_setschedparam(pthread_self(), SCHED_FIFO, &wanted) == 0;
}

static void *watch_clock(void *unused)
{
    uint64_t last, gap, next;

    (void)unused;
    record->is_fifo = (uint64_t)be_fifo(50);
    for (last = now();; last = next) {
        wait_ns(PAUSE_NS);
        next = now();
        gap = next - last - PAUSE_NS;
        if (next - last < PAUSE_NS)
            continue;
        if (gap > atomic_load(&record->longest_gap_ns))
            atomic_store(&record->longest_gap_ns, gap);
        if (gap > GAP_NS) {
            atomic_fetch_add(&record->all_gaps_ns, gap);
            atomic_fetch_add(&record->gaps, 1);
        }
    }
}

static void *write_pages(void *unused)
{
    uint64_t random = 99, due = now();

    (void)unused;
    be_fifo(40);
    for (;;) {
        uint64_t each = atomic_load(&rate), begun = now(), took;

        if (!each) {
            wait_ns(1000000);
            due = now();
            continue;
        }
        if (begun < due) {
            wait_ns(due - begun);
            continue;
        }
        if (begun - due > 10000000)
            due = begun; /* it stood still: what was missed is not made up for */
        due += 1000000000 / each;
        begun = now();
        atomic_fetch_add_explicit(&in_page[stage_random(&random) % pages]->written, 1, memory_order_relaxed);
        took = now() - begun;
        atomic_fetch_add(&record->writes, 1);
        if (took > atomic_load(&record->longest_write_ns))
            atomic_store(&record->longest_write_ns, took);
    }
    return NULL;
}

static void thread(void *(*run)(void *))
{
    pthread_t id;

    if (pthread_create(&id, NULL, run, NULL) != 0)
        stage_fail("a thread cannot be made");
}

static void fill(const char *kind, uint64_t bytes)
{
    uint64_t random = 4711, made = 0, number = 0, last_page = 0;
    int large = !strcmp(kind, "large"), fast = !strcmp(kind, "fast"), holes = fast || !strcmp(kind, "holes"), runs = !strcmp(kind, "runs");
    struct block *last = NULL, *free_these = NULL;

    in_page = stage_pages((bytes / 4096 + 4096) * sizeof *in_page);
    for (; made < bytes; number++) {
        size_t size = large ? 65536 : 24 + stage_random(&random) % (fast ? 81 : 113);
        struct block *block = malloc(size);
        int freed = holes ? (number & 1) : runs && (number / RUN & 1);

        if (!block)
            stage_fail("out of memory");
        memset(block, 0, size);
        made += malloc_usable_size(block) + 8;
        if (freed) {
            block->next = free_these;
            free_these = block;
            continue;
        }
        if (number % CHAIN < RUN * 2 && (!last || number / CHAIN != last->written)) {
            block->chain = chains;
            chains = block;
            last = block;
            last->written = number / CHAIN;
        } else {
            block->next = chains->next;
            chains->next = block;
        }
        if ((uintptr_t)block / 4096 != last_page) {
            last_page = (uintptr_t)block / 4096;
            in_page[pages++] = block;
        }
    }
    while (free_these) {
        struct block *next = free_these->next;

        free(free_these);
        free_these = next;
    }
    if (!fast)
        spare = malloc(4000); /* sorts what is free into bins */
}

int main(int argc, char **argv)
{
    static const uint64_t rates[] = {0, 1000, 20000};

    if (argc != 4)
        stage_fail("usage: standing RECORD KIND BYTES");
    record = stage_record(argv[1], sizeof *record);
    mallopt(M_MMAP_MAX, 0); /* one heap, from the break */
    if (strcmp(argv[2], "fast"))
        mallopt(M_MXFAST, 0);
    mallopt(M_ARENA_MAX, 1);
    fill(argv[2], strtoull(argv[3], NULL, 10));
    thread(watch_clock);
    thread(write_pages);
    wait_ns(50000000);
    for (;;) {
        stage_ready(1);
        atomic_store(&rate, rates[(stage_command() - '0') % 3u]);
        wait_ns(20000000);
        atomic_store(&record->longest_gap_ns, 0);
        atomic_store(&record->all_gaps_ns, 0);
        atomic_store(&record->gaps, 0);
        atomic_store(&record->longest_write_ns, 0);
        atomic_store(&record->writes, 0);
    }
}
