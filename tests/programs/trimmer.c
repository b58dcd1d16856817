/* trimmer RECORD STATE

   Builds fragmented heaps, waits, and on the command `t` calls malloc_trim(0) itself and writes its return value to the record.

   STATE: main (one arena), arenas (four), fast (fastbin chunks beside free ones, beside each other and beside top), untouched
   (free chunks with pages that nobody ever wrote), fork (half of the free pages are shared with a child after fork), sbrk (a
   foreign sbrk above top), mmapped-main (the break cannot move), small-top (top below one page). */

#include "stage.h"
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>

struct record {
    uint64_t done;     /* number of malloc_trim calls made */
    uint64_t returned; /* of the last one */
    uint64_t child;    /* pid of the forked child, or 0 */
};

#define BLOCKS 4000

static struct record *record;
static atomic_uint parked;
static struct { char *memory; size_t size; } blocks[4][BLOCKS];

/* Blocks of 100 to 30,000 bytes; runs of them are freed, so that free chunks of many pages lie between used ones. */
static void fragment(unsigned thread, int touch)
{
    uint64_t random = 31 + thread;
    char *volatile high, *volatile higher;
    unsigned i, j;

    for (i = 0; i < BLOCKS; i++) {
        size_t size = 100 + stage_random(&random) % (i % 4 ? 3000 : 30000);

        blocks[thread][i].memory = malloc(size);
        blocks[thread][i].size = size;
        if (touch)
            memset(blocks[thread][i].memory, 1, size);
    }
    for (i = 0; i + 8 < BLOCKS; i += 8) {
        unsigned run = 1 + (unsigned)(stage_random(&random) % 6);

        for (j = 0; j < run; j++) {
            free(blocks[thread][i + j].memory);
            blocks[thread][i + j].memory = NULL;
        }
    }
    /* Larger than any free chunk, so cut from top: freed, they make a top with pages in RAM. */
    high = malloc(100000);
    higher = malloc(100000);
    memset(high, 6, 100000);
    memset(higher, 6, 100000);
    free(high);
    free(higher);
}

/* Fastbin chunks between and beside large free chunks, and last of all beside top. */
static void with_fastbins(void)
{
    static char *small[3000], *large[3000];
    static char *filler[64];
    unsigned i;

    for (i = 0; i < 64; i++)
        filler[i] = malloc(16 + i);
    for (i = 0; i < 3000; i++) {
        large[i] = malloc(5000 + i);
        memset(large[i], 1, 5000 + i);
        small[i] = malloc(40 + i % 60);
        memset(small[i], 2, 40 + i % 60);
    }
    for (i = 0; i < 64; i++)
        free(filler[i]); /* the caches are filled by these and the next ones; the rest go to the fastbins */
    for (i = 0; i < 3000; i++) {
        if (i % 5 != 4)
            free(large[i]);
        large[i] = NULL;
    }
    for (i = 0; i < 3000; i++)
        if (i % 3 != 2 || i > 2990)
            free(small[i]); /* no large chunk is freed any more, so nothing consolidates them */
}

static void *work(void *argument)
{
    fragment((unsigned)(uintptr_t)argument, 1);
    atomic_fetch_add(&parked, 1);
    for (;;)
        pause();
    return NULL;
}

static void fork_and_share(void)
{
    pid_t parent = getpid(), child;
    unsigned i;

    child = fork();
    if (child < 0)
        stage_fail("fork failed");
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
            _exit(0);
        for (;;)
            pause();
    }
    record->child = (uint64_t)child;
    /* Writing to a used block makes its pages the parent's own again, and with them parts of the free chunks beside it. */
    for (i = 0; i < BLOCKS; i += 16)
        if (blocks[0][i + 7].memory)
            memset(blocks[0][i + 7].memory, 3, blocks[0][i + 7].size);
}

/* Inside the large free chunks at the end of the heap, every second page is rewritten after the fork. */
static char *half_shared;
#define HALF_SHARED 100000

static void build(const char *state)
{
    unsigned i;

    if (!strcmp(state, "mmapped-main")) {
        char *after = (char *)(((uintptr_t)sbrk(0) + 4 * 4096) & ~(uintptr_t)4095);

        if (mmap(after, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) != (void *)after)
            stage_fail("the page above the break cannot be taken");
    }
    if (!strcmp(state, "arenas"))
        for (i = 1; i < 4; i++) {
            pthread_t id;

            if (pthread_create(&id, NULL, work, (void *)(uintptr_t)i) != 0)
                stage_fail("a thread cannot be made");
        }
    if (!strcmp(state, "fork")) {
        half_shared = malloc(HALF_SHARED);
        memset(half_shared, 4, HALF_SHARED);
    }
    fragment(0, strcmp(state, "untouched") != 0);
    if (!strcmp(state, "fast"))
        with_fastbins();
    if (!strcmp(state, "sbrk") && sbrk(100000) == (void *)-1)
        stage_fail("sbrk failed");
    if (!strcmp(state, "small-top"))
        malloc_trim(0); /* and a top of less than two pages is left */
    while (atomic_load(&parked) != (strcmp(state, "arenas") ? 0 : 3))
        usleep(1000);
    if (!strcmp(state, "fork")) {
        volatile uintptr_t place = (uintptr_t)half_shared;
        volatile char *inside = (volatile char *)place;

        free(half_shared);
        fork_and_share();
        for (i = 8192; i + 8192 < HALF_SHARED; i += 8192)
            inside[i] = 5; /* a stray write into the middle of a free chunk: harmless, and the page is private again */
    }
}

int main(int argc, char **argv)
{
    if (argc != 3)
        stage_fail("usage: trimmer RECORD STATE");
    prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0); /* khugepaged fills pages that nobody wrote, at any moment */
    stage_deepen(); /* the stack that malloc_trim will need is there already */
    record = stage_record(argv[1], sizeof *record);
    malloc_trim(0); /* resolved, and its own pages touched, before anything is measured */
    build(argv[2]);
    stage_ready(1);
    for (;;)
        if (stage_command() == 't') {
            record->returned = (uint64_t)malloc_trim(0);
            record->done++;
            stage_ready(1);
        }
}
