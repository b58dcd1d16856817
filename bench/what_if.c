/* Heaps of some shapes, for bench/what_if.py and bench/advice.py: THREADS threads each make BLOCKS blocks of LEAST to MOST bytes, touch them,
   free those that KEEP says (every n-th stays; 0: none), ROUNDS times. Then it waits for the end of stdin. Words at the end: `live`, only those
   blocks are made that would be left; `ended`, the threads end; `queue`, blocks are of LEAST and MOST bytes in turn; `main`, the first thread
   does it all; `after`, a block of 24 MiB was made and freed before; `sparse`, only the first byte of a block is written. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static size_t blocks, least, most, keep, rounds;
static int live, ended, queue, alone, after, sparse;
static pthread_barrier_t made;

static void *work(void *seed) {
    unsigned state = (unsigned)(size_t)seed * 2654435761u + 1;
    char **all = calloc(blocks, sizeof *all);
    size_t *sizes = calloc(blocks, sizeof *sizes);
    for (size_t round = 0; round < rounds; round++) {
        for (size_t i = 0; i < blocks; i++) {
            if (sizes[i]) continue;
            state = state * 1664525u + 1013904223u;
            sizes[i] = queue ? (i % 2 ? most : least) : least + (state >> 8) % (most - least + 1);
            if (live) continue;
            all[i] = malloc(sizes[i]);
            memset(all[i], 1, sparse ? 1 : sizes[i]);
        }
        for (size_t i = 0; i < blocks; i++)
            if (!keep || (i + round) % keep) {
                free(all[i]);
                all[i] = NULL;
                sizes[i] = 0;
            }
    }
    for (size_t i = 0; live && i < blocks; i++)
        if (sizes[i]) {
            all[i] = malloc(sizes[i]);
            memset(all[i], 1, sparse ? 1 : sizes[i]);
        }
    if (alone) return all;
    pthread_barrier_wait(&made);
    if (!ended) pthread_barrier_wait(&made);
    return all;
}

int main(int argc, char **argv) {
    if (argc < 7) return 2;
    for (int i = 7; i < argc; i++) {
        live |= !strcmp(argv[i], "live"), ended |= !strcmp(argv[i], "ended");
        queue |= !strcmp(argv[i], "queue"), alone |= !strcmp(argv[i], "main");
        after |= !strcmp(argv[i], "after"), sparse |= !strcmp(argv[i], "sparse");
    }
    size_t threads = strtoul(argv[1], NULL, 10);
    blocks = strtoul(argv[2], NULL, 10), least = strtoul(argv[3], NULL, 10), most = strtoul(argv[4], NULL, 10);
    keep = strtoul(argv[5], NULL, 10), rounds = strtoul(argv[6], NULL, 10);
    char end;
    if (after) {
        char *volatile first = malloc(24 << 20);
        free(first);
    }
    if (alone) {
        work(NULL);
        return read(0, &end, 1) < 0;
    }
    pthread_barrier_init(&made, NULL, (unsigned)threads + 1);
    for (size_t i = 0; i < threads; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, work, (void *)(i + 1)) || pthread_detach(thread)) return 3;
    }
    pthread_barrier_wait(&made);
    return read(0, &end, 1) < 0;
}
