/* What programs share that know what each of their containers holds: bytes taken, users of elements, the record.

   The record has a line a fact: `owns NAME BYTES ADDRESS SIZE` (the variable alone keeps so much), `most NAME BYTES ADDRESS SIZE`
   (it does not own what others own, too: at most so much), `child NAME BYTES ADDRESS 0` (the block there keeps so much),
   `at NAME NUMBER ADDRESS 0` (the element with this number, from its head on, lies there). */

#ifndef TRUTH_H
#define TRUTH_H

#include "stage.h"

#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>

#define HANDS 4096

struct request { long id; void *what; long more[11]; };

static FILE *truth;
static size_t taken;
static uint64_t chance = 88172645463325252ull;
void **g_in_work; /* not static: the compiler keeps what is only written */
static size_t in_work;
struct request *g_requests[HANDS];
static size_t requests;
static void **hands; /* outside every heap, gone before the program is ready */
static size_t held;
static unsigned used_of_1000 = 2; /* elements in each of three ways: in the table, by a request, in a thread's hands */

static uintptr_t some(uintptr_t limit) { return stage_random(&chance) % limit; }

/* Zeroed memory of the container that is being built. */
static inline void *take(size_t size)
{
    void *made = calloc(1, size);

    taken += malloc_usable_size(made);
    return made;
}

static inline char *take_text(size_t most)
{
    size_t size = 24 + some(most);
    char *text = (char *)take(size);

    memset(text, 'a' + (int)(size % 26), size - 1);
    return text;
}

/* The element is now and then in use elsewhere as well. */
static inline void use(void *element)
{
    uintptr_t way = some(1000);

    if (way < used_of_1000 && in_work < HANDS) {
        g_in_work[in_work++] = element;
    } else if (way < 2 * used_of_1000 && held < HANDS) {
        hands[held++] = element;
    } else if (way < 3 * used_of_1000 && requests < HANDS) {
        g_requests[requests] = (struct request *)calloc(1, sizeof(struct request));
        g_requests[requests++]->what = element;
    }
}

static inline void truth_begin(const char *path)
{
    static char buffer[1 << 16];

    truth = fopen(path, "w");
    if (!truth)
        stage_fail("the record cannot be written");
    setvbuf(truth, buffer, _IOFBF, sizeof buffer);
    g_in_work = (void **)calloc(HANDS, sizeof *g_in_work);
    hands = (void **)stage_pages(HANDS * sizeof *hands);
}

static inline void tell(const char *how, const char *name, size_t bytes, const void *address, size_t size)
{
    fprintf(truth, "%s %s %zu 0x%lx %zu\n", how, name, bytes, (unsigned long)(uintptr_t)address, size);
}

/* What was taken since the last one is the variable's. */
#define OWNS(variable) (tell("owns", #variable, taken, (const void *)&(variable), sizeof(variable)), taken = 0)
#define MOST(variable, bytes) tell("most", #variable, bytes, (const void *)&(variable), sizeof(variable))

/* What the following elements are of, in the order of its links. */
#define IN_ORDER(variable, type, first, next) \
    do { \
        size_t number = 0; \
        for (type *one = (first); one; one = (next)) \
            tell("at", #variable, number++, one, 0); \
    } while (0)

static inline void *watch(void *element)
{
    void *volatile mine[2] = {element, element};

    while (mine[0])
        pause();
    return mine[1];
}

/* So many threads hold elements; then the program stays as it is until its test ends. */
static inline void truth_ready(int threads)
{
    pthread_t thread;
    pthread_attr_t small;

    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 128 << 10);
    for (int i = 0; i < threads && held; i++)
        if (pthread_create(&thread, &small, watch, hands[some(held)]) != 0)
            stage_fail("no thread");
    munmap(hands, HANDS * sizeof *hands);
    fclose(truth);
    stage_ready(1);
    for (;;)
        stage_command();
}

#endif
