/* losing RECORD MIB LOST_A_SECOND: a heap of blocks of 4 KiB whose pages a thread writes to at random, 20,000 a second, while another one
   loses blocks and lists them, and a third maps and unmaps. 20 huge pages beside it, of which it goes on writing to the first 3. */

#include "stage.h"
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#define MOST (1u << 20)
#define MASK 0x5a5a5a5a5a5a5a5aULL
#define HUGE (2u << 20)
#define HUGE_PAGES 20u
#define WRITTEN 3u

struct record {
    _Atomic uint64_t begun, lost, longest_write_ns, writes;
    uint64_t huge; /* where the huge pages are */
    uint64_t addresses[MOST]; /* disguised */
};

static struct record *record;
static char **held;
static size_t count, a_second;
static char *huge;
static void *volatile slot;

static uint64_t now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static void pause_ns(long ns)
{
    struct timespec t = {0, ns};

    nanosleep(&t, NULL);
}

__attribute__((noinline)) static void lose(uint64_t number)
{
    char *block = malloc(100 + number % 900);

    if (block == NULL)
        stage_fail("out of memory");
    memset(block, 1, 100);
    record->addresses[number] = (uint64_t)(uintptr_t)block ^ MASK;
    atomic_store(&record->begun, number + 1);
    slot = block;
    free(malloc(3000));
    slot = NULL;
}

static void *lose_all(void *unused)
{
    uint64_t number;

    (void)unused;
    for (number = 0; number < MOST; number++) {
        stage_deepen();
        lose(number);
        stage_deepen();
        stage_forget_vectors();
        atomic_store(&record->lost, number + 1);
        pause_ns(1000000000 / (long)a_second);
    }
    return NULL;
}

static void *write_all(void *unused)
{
    uint64_t random = 99, begun, took;
    unsigned i;

    (void)unused;
    for (;;) {
        for (i = 0; i < 20; i++) {
            begun = now();
            held[stage_random(&random) % count][100]++;
            took = now() - begun;
            if (took > atomic_load(&record->longest_write_ns))
                atomic_store(&record->longest_write_ns, took);
            atomic_fetch_add(&record->writes, 1);
        }
        for (i = 0; i < WRITTEN; i++)
            huge[i * HUGE]++;
        pause_ns(1000000);
    }
    return NULL;
}

static void *map_all(void *unused)
{
    (void)unused;
    for (;;) {
        char *one = stage_pages(1 << 20);

        memset(one, 1, 1 << 16);
        pause_ns(2000000);
        munmap(one, 1 << 20);
        pause_ns(2000000);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    void *(*const works[])(void *) = {lose_all, write_all, map_all};
    pthread_t id;
    size_t i;

    if (argc != 4)
        stage_fail("usage: losing RECORD MIB LOST_A_SECOND");
    record = stage_record(argv[1], sizeof *record);
    count = (size_t)atoi(argv[2]) << 8;
    a_second = (size_t)atoi(argv[3]);
    held = stage_pages(count * sizeof *held);
    for (i = 0; i < count; i++)
        memset(held[i] = malloc(4000), 0, 4000);
    huge = stage_pages((HUGE_PAGES + 1) * HUGE);
    huge = (char *)(((uintptr_t)huge + HUGE - 1) & -(uintptr_t)HUGE);
    madvise(huge, HUGE_PAGES * HUGE, MADV_HUGEPAGE);
    for (i = 0; i < HUGE_PAGES; i++)
        huge[i * HUGE] = 1;
    record->huge = (uint64_t)(uintptr_t)huge;
    for (i = 0; i < sizeof works / sizeof *works; i++)
        if (pthread_create(&id, NULL, works[i], NULL) != 0)
            stage_fail("a thread cannot be made");
    stage_ready(1);
    for (;;)
        stage_command();
}
