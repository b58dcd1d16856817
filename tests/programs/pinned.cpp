/* pinned RECORD STATE: few objects keep much free memory. The record: how many, their usable bytes, a child's pid, their addresses.

   waves   one object of 40 bytes in each page of 4 KiB between two buffers, which are freed
   regions one object in 64 of its size, the rest is freed
   top     one object at the begin of a thread's second heap, in front of much that is freed again; wants MALLOC_TRIM_THRESHOLD_ above that
   ended   as waves, by a thread that has ended since
   forked  as waves, and a child that does nothing
   fast    as waves, with small blocks in fastbins between; wants glibc.malloc.tcache_count=0
   break   as waves, and other code moves the break */

#include "stage.h"

#include <malloc.h>
#include <pthread.h>
#include <signal.h>

#define OBJECTS 2000
#define LARGE 100000
#define HEAP_MASK (~(uintptr_t)((64 << 20) - 1))

struct Entry {
    Entry *next;
    long number[3];
    explicit Entry(Entry *before) : next(before), number() {}
    virtual ~Entry() {}
};

struct Keeper {
    char rest[LARGE - 100];
    Keeper() { rest[0] = 1; }
    virtual ~Keeper() {}
};

Entry *volatile g_index;
Keeper *volatile g_keeper;
static uint64_t *record;
static pthread_barrier_t done, forever;

static void note(void *block)
{
    record[1] += malloc_usable_size(block);
    record[3 + record[0]++] = ~(uint64_t)block; /* what looks like a pointer would hold it */
}

static void waves(int has_small)
{
    void **buffers = (void **)stage_pages(3 * OBJECTS * sizeof *buffers);
    int count = 0, number;

    for (number = 0; number < OBJECTS; number++) {
        buffers[count++] = malloc(has_small ? 1900 : 2000);
        if (has_small)
            buffers[count++] = malloc(88);
        buffers[count++] = malloc(2000);
        g_index = new Entry(g_index);
        note(g_index);
    }
    for (number = 0; number < count; number++)
        free(buffers[number]);
    munmap(buffers, 3 * OBJECTS * sizeof *buffers);
}

static void regions(void)
{
    void **buffers = (void **)stage_pages(64 * OBJECTS * sizeof *buffers);
    int number;

    for (number = 0; number < 64 * OBJECTS; number++)
        buffers[number] = number % 64 ? malloc(sizeof(Entry)) : (g_index = new Entry(g_index));
    for (number = 0; number < 64 * OBJECTS; number++) {
        if (number % 64)
            free(buffers[number]);
        else
            note(buffers[number]);
    }
    munmap(buffers, 64 * OBJECTS * sizeof *buffers);
}

static void *top(void *)
{
    Keeper **made = (Keeper **)stage_pages(1024 * sizeof *made);
    int count = 1, first = 0, number;

    made[0] = new Keeper;
    while (!first) {
        made[count] = new Keeper;
        if (((uintptr_t)made[count] & HEAP_MASK) != ((uintptr_t)made[count - 1] & HEAP_MASK))
            first = count;
        count++;
    }
    for (number = 0; number < 200; number++)
        made[count++] = new Keeper;
    g_keeper = made[first];
    note(g_keeper);
    for (number = 0; number < count; number++)
        if (number != first)
            delete made[number];
    munmap(made, 1024 * sizeof *made);
    pthread_barrier_wait(&done);
    pthread_barrier_wait(&forever);
    return NULL;
}

static void *ended(void *)
{
    waves(0);
    return NULL;
}

int main(int argc, char **argv)
{
    const char *state = argc == 3 ? argv[2] : "";
    pthread_t thread;

    record = (uint64_t *)stage_record(argv[1], (3 + OBJECTS) * sizeof *record);
    pthread_barrier_init(&done, NULL, 2);
    pthread_barrier_init(&forever, NULL, 2);
    if (!strcmp(state, "waves") || !strcmp(state, "forked") || !strcmp(state, "break"))
        waves(0);
    else if (!strcmp(state, "fast"))
        waves(1);
    else if (!strcmp(state, "regions"))
        regions();
    else if (!strcmp(state, "top")) {
        if (pthread_create(&thread, NULL, top, NULL) != 0)
            stage_fail("no thread");
        pthread_barrier_wait(&done);
    } else if (!strcmp(state, "ended")) {
        if (pthread_create(&thread, NULL, ended, NULL) != 0 || pthread_join(thread, NULL) != 0)
            stage_fail("no thread");
    } else
        stage_fail("usage: pinned RECORD waves|regions|top|ended|forked|fast|break");
    if (!strcmp(state, "break") && sbrk(4096) == (void *)-1)
        stage_fail("no break");
    if (!strcmp(state, "forked")) {
        pid_t child = fork();
        if (!child) {
            prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
            for (;;)
                pause();
        }
        record[2] = (uint64_t)child;
    }
    stage_forget_vectors();
    stage_ready(1);
    for (;;)
        stage_command();
}
