/* Heaps of some shapes, for bench/what_if.py: THREADS threads each make BLOCKS blocks of LEAST to MOST bytes, touch them, free those that
   KEEP says (every n-th stays; 0: none), ROUNDS times. Then it waits for the end of stdin. With a last word `live` only those blocks are made
   that would be left. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static size_t blocks, least, most, keep, rounds;
static int live;
static pthread_barrier_t made;

static void *work(void *seed) {
    unsigned state = (unsigned)(size_t)seed * 2654435761u + 1;
    char **all = calloc(blocks, sizeof *all);
    size_t *sizes = calloc(blocks, sizeof *sizes);
    for (size_t round = 0; round < rounds; round++) {
        for (size_t i = 0; i < blocks; i++) {
            if (sizes[i]) continue;
            state = state * 1664525u + 1013904223u;
            sizes[i] = least + (state >> 8) % (most - least + 1);
            if (live) continue;
            all[i] = malloc(sizes[i]);
            memset(all[i], 1, sizes[i]);
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
            memset(all[i], 1, sizes[i]);
        }
    pthread_barrier_wait(&made);
    pthread_barrier_wait(&made);
    return all;
}

int main(int argc, char **argv) {
    if (argc < 7) return 2;
    live = argc > 7;
    size_t threads = strtoul(argv[1], NULL, 10);
    blocks = strtoul(argv[2], NULL, 10), least = strtoul(argv[3], NULL, 10), most = strtoul(argv[4], NULL, 10);
    keep = strtoul(argv[5], NULL, 10), rounds = strtoul(argv[6], NULL, 10);
    pthread_barrier_init(&made, NULL, (unsigned)threads + 1);
    for (size_t i = 0; i < threads; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, work, (void *)(i + 1))) return 3;
    }
    pthread_barrier_wait(&made);
    char end;
    return read(0, &end, 1) < 0;
}
