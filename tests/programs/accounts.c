/* accounts RECORD STATE

   Builds STATE, then writes what malloc itself says about it: the XML of malloc_info(0, stdout) to RECORD.xml, mallinfo2 to the
   record, the text of malloc_stats() to standard error. Every other thread is parked by then. The accounts are taken twice, and
   the program fails if they differ: taking them must not change what they describe. (stdout is a static FILE with a static
   buffer, so printing allocates nothing.)

   STATE: fresh (no malloc ever), one, seven (seven arenas), subheaps, sbrk, sbrk-last, nobrk (the break cannot move), fast,
   mmapped (all alignments), exit (threads came and went), big-top. */

#include "stage.h"
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

struct record {
    uint64_t arena, ordblks, smblks, hblks, hblkhd, usmblks, fsmblks, uordblks, fordblks, keepcost;
    uint64_t same; /* 1: both accounts were equal */
    uint64_t pagesize;
};

#define MOST 20000
#define THREADS 6

static struct record *record;
static char buffer[1 << 20], first[1 << 20];
static void **tables[THREADS + 1]; /* mapped, not malloc'd */
static atomic_uint parked;
static int subheaps;

/* A mix with holes: blocks in the thread cache, the fastbins, the unsorted, the small and the large bins. */
static void mix(void **table, unsigned count, uint64_t random)
{
    unsigned i;

    for (i = 0; i < count; i++)
        table[i] = malloc(stage_request(&random));
    for (i = 0; i < count; i++)
        if (stage_random(&random) % 2) {
            free(table[i]);
            table[i] = NULL;
        }
    /* Sort the unsorted chunks into bins, then make new unsorted ones and fastbin chunks. */
    stage_sort();
    for (i = 0; i < count; i += 3)
        if (!table[i])
            table[i] = malloc(24 + stage_random(&random) % 2000);
    for (i = 1; i < count; i += 7) {
        free(table[i]);
        table[i] = NULL;
    }
}

static void large(void **table)
{
    unsigned i;

    for (i = 0; i < 2000; i++)
        table[i] = malloc(100000);
    for (i = 0; i < 2000; i += 3) {
        free(table[i]);
        table[i] = NULL;
    }
}

static void *work(void *argument)
{
    unsigned thread = (unsigned)(uintptr_t)argument;

    if (subheaps && thread <= 2)
        large(tables[thread]);
    else
        mix(tables[thread], 3000, 1234567 + thread);
    atomic_fetch_add(&parked, 1);
    for (;;)
        pause();
    return NULL;
}

static void *work_and_end(void *argument)
{
    mix(argument, 2000, 4242);
    return NULL;
}

static void start_threads(unsigned count)
{
    unsigned i;

    for (i = 1; i <= count; i++) {
        pthread_t id;

        if (pthread_create(&id, NULL, work, (void *)(uintptr_t)i) != 0)
            stage_fail("a thread cannot be made");
    }
    while (atomic_load(&parked) != count)
        usleep(1000);
}

/* Takes bytes from the break between allocations, as other users of sbrk do, in odd sizes. */
static void foreign(void **table, int last)
{
    static const intptr_t sizes[] = {1, 24, 4096, 10007, 100003, 8, 65536};
    uint64_t random = 99;
    unsigned i, j, n = 0;

    for (i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        char *taken = sbrk(sizes[i]);

        if (taken == (void *)-1)
            stage_fail("sbrk failed");
        memset(taken, 0xee, (size_t)sizes[i]);
        for (j = 0; j < 200; j++)
            table[n++] = malloc(stage_request(&random));
    }
    for (i = 0; i < n; i += 2) {
        free(table[i]);
        table[i] = NULL;
    }
    if (last && sbrk(12345) == (void *)-1)
        stage_fail("sbrk failed");
}

static void no_brk(void **table)
{
    char *after = (char *)(((uintptr_t)sbrk(0) + 4 * 4096) & ~(uintptr_t)4095);

    if (mmap(after, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) != (void *)after)
        stage_fail("the page above the break cannot be taken");
    mix(table, 10000, 77);
}

static void many_fast(void **table)
{
    uint64_t random = 5;
    unsigned i;

    for (i = 0; i < MOST; i++)
        table[i] = malloc(1 + stage_random(&random) % 120);
    for (i = 0; i < MOST; i += 2) {
        free(table[i]);
        table[i] = NULL;
    }
}

static void mmapped(void **table)
{
    unsigned n = 0;
    size_t alignment;

    for (alignment = 16; alignment <= (size_t)32 << 20; alignment *= 2) {
        if (posix_memalign(&table[n++], alignment, 200000) != 0)
            stage_fail("posix_memalign failed");
        table[n++] = malloc(150000 + alignment % 7777);
        table[n++] = memalign(alignment, 40);
    }
    for (n = 1; n < 40; n += 6) {
        free(table[n]);
        table[n] = NULL;
    }
}

static void build(const char *state)
{
    if (!strcmp(state, "fresh"))
        return;
    if (!strcmp(state, "sbrk"))
        foreign(tables[0], 0);
    else if (!strcmp(state, "sbrk-last"))
        foreign(tables[0], 1);
    else if (!strcmp(state, "nobrk"))
        no_brk(tables[0]);
    else if (!strcmp(state, "fast"))
        many_fast(tables[0]);
    else if (!strcmp(state, "mmapped"))
        mmapped(tables[0]);
    else
        mix(tables[0], 3000, 1);
    if (!strcmp(state, "seven"))
        start_threads(6);
    if (!strcmp(state, "subheaps")) {
        subheaps = 1;
        start_threads(3);
    }
    if (!strcmp(state, "exit")) {
        pthread_t ids[3];
        unsigned i;

        for (i = 0; i < 3; i++)
            pthread_create(&ids[i], NULL, work_and_end, tables[i + 1]);
        for (i = 0; i < 3; i++)
            pthread_join(ids[i], NULL);
    }
    if (!strcmp(state, "big-top")) {
        mallopt(M_TRIM_THRESHOLD, 1 << 30);
        mallopt(M_MMAP_THRESHOLD, 1 << 30);
        tables[0][MOST - 1] = malloc(9000000);
        free(tables[0][MOST - 1]);
    }
}

static void take_account(struct record *into)
{
    struct mallinfo2 info;

    rewind(stdout);
    if (malloc_info(0, stdout) != 0 || fflush(stdout) != 0)
        stage_fail("malloc_info failed");
    info = mallinfo2();
    into->arena = (uint64_t)info.arena;
    into->ordblks = (uint64_t)info.ordblks;
    into->smblks = (uint64_t)info.smblks;
    into->hblks = (uint64_t)info.hblks;
    into->hblkhd = (uint64_t)info.hblkhd;
    into->usmblks = (uint64_t)info.usmblks;
    into->fsmblks = (uint64_t)info.fsmblks;
    into->fordblks = (uint64_t)info.fordblks;
    into->uordblks = (uint64_t)info.uordblks;
    into->keepcost = (uint64_t)info.keepcost;
}

int main(int argc, char **argv)
{
    static struct record again;
    static char xml_path[4096];
    int ready, xml;
    unsigned i;
    ssize_t length;

    if (argc != 3 || strlen(argv[1]) > 4000)
        stage_fail("usage: accounts RECORD STATE");
    record = stage_record(argv[1], sizeof *record);
    record->pagesize = (uint64_t)sysconf(_SC_PAGESIZE);
    for (i = 0; i <= THREADS; i++)
        tables[i] = stage_pages(MOST * sizeof(void *));
    strcpy(xml_path, argv[1]);
    strcat(xml_path, ".xml");
    ready = dup(1);
    xml = open(xml_path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (ready < 0 || xml < 0 || dup2(xml, 1) != 1)
        stage_fail("the file for the XML cannot be made");
    setvbuf(stdout, buffer, _IOFBF, sizeof buffer);
    build(argv[2]);
    take_account(record);
    length = pread(xml, first, sizeof first, 0);
    take_account(&again);
    malloc_stats();
    again.same = 0;
    again.pagesize = record->pagesize;
    record->same = length > 0 && memcmp(record, &again, sizeof again) == 0 && pread(xml, buffer, sizeof buffer, 0) == length
        && memcmp(first, buffer, (size_t)length) == 0;
    if (!record->same)
        stage_fail("two accounts of the same state differ");
    stage_ready(ready);
    for (;;)
        stage_command();
}
