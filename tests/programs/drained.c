/* drained RECORD STATE: threads that have freed nearly all that they had.

   ended   six threads that have ended; one small block of each stays in use, above all that it freed
   queue   a thread that lives: large blocks and small ones in turn, freed in this order, so that the small ones lie in fastbins between
   tiles   four threads that live, whose blocks of 2 MiB are below the threshold that a first free raised; the last of each stays
   buried  a thread that lives: of each 16 small blocks one stays in use

   The record holds the bytes that were freed. */

#include "stage.h"

#include <pthread.h>

#define MOST 60000
#define TILE (2 << 20)

static pthread_barrier_t begun, done, forever;
static const char *state;
static uint64_t *record;
static void **kept;

/* Blocks of `large` bytes, a small one behind each; `keep` of them, one in so many, stay. */
static void fill(int count, size_t large, size_t small, int keep)
{
    void **blocks = stage_pages(2 * MOST * sizeof *blocks);
    int number;

    for (number = 0; number < count; number++) {
        memset(blocks[2 * number] = malloc(large), 1, large);
        if (small)
            memset(blocks[2 * number + 1] = malloc(small), 1, small);
    }
    for (number = 0; number < count; number++) {
        if (keep && number % keep == keep - 1) {
            __atomic_store_n(kept + __atomic_fetch_add(record + 1, 1, __ATOMIC_SEQ_CST), blocks[2 * number], __ATOMIC_SEQ_CST);
            continue;
        }
        free(blocks[2 * number]);
        free(blocks[2 * number + 1]);
        __atomic_fetch_add(record, large + small, __ATOMIC_SEQ_CST);
    }
    munmap(blocks, 2 * MOST * sizeof *blocks);
}

static void *work(void *unused)
{
    pthread_barrier_wait(&begun);
    free(malloc(100)); /* its arena, while the others have theirs */
    pthread_barrier_wait(&begun);
    if (!strcmp(state, "ended"))
        fill(1600, 4000, 0, 1600);
    else if (!strcmp(state, "queue"))
        fill(MOST / 2, 632, 112, 0);
    else if (!strcmp(state, "tiles"))
        fill(8, TILE, 0, 8);
    else
        fill(MOST, 504, 0, 4);
    pthread_barrier_wait(&done);
    if (strcmp(state, "ended"))
        pthread_barrier_wait(&forever);
    return unused;
}

int main(int argc, char **argv)
{
    pthread_t threads[6];
    int number, count;

    if (argc != 3)
        stage_fail("usage: drained RECORD ended|queue|tiles|buried");
    state = argv[2];
    count = !strcmp(state, "ended") ? 6 : !strcmp(state, "tiles") ? 4 : 1;
    record = stage_record(argv[1], 2 * sizeof *record);
    kept = stage_pages(MOST * sizeof *kept);
    if (!strcmp(state, "tiles")) { /* a mapped block, whose free raises the threshold */
        void *volatile tile = malloc(TILE + (64 << 10));
        free(tile);
    }
    pthread_barrier_init(&begun, NULL, (unsigned)count);
    pthread_barrier_init(&done, NULL, (unsigned)count + 1);
    pthread_barrier_init(&forever, NULL, (unsigned)count + 1);
    for (number = 0; number < count; number++)
        if (pthread_create(threads + number, NULL, work, NULL) != 0)
            stage_fail("no thread");
    pthread_barrier_wait(&done);
    for (number = 0; !strcmp(state, "ended") && number < count; number++)
        pthread_join(threads[number], NULL);
    stage_ready(1);
    for (;;)
        stage_command();
}
