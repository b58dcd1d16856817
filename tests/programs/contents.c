/* Blocks of which nothing but the content tells what they are: each is held by an array of the program and by one in the heap. Those of
   `placed` are held by the program's alone. */
#include "stage.h"

#include <stdlib.h>

enum { SAME = 1000, TEXTS = 300, NUMBERS = 200, DENSE = 100, BLANKS = 64, PLACED = 2000, OTHERS = 400 };

static void *volatile first[SAME + TEXTS + NUMBERS + DENSE + BLANKS + OTHERS], *volatile *volatile second;
static void *volatile placed[PLACED];
static size_t held;

static void *hold(size_t bytes)
{
    void *made = calloc(1, bytes);
    first[held] = second[held] = made;
    held++;
    return made;
}

int main(void)
{
    uint64_t state = 7;
    second = calloc(sizeof first / sizeof *first, sizeof *first);
    for (int i = 0; i < SAME; i++) {
        uint32_t *words = hold(2000);
        for (uint32_t at = 0; at < 500; at++)
            words[at] = at * 2654435761u | 1;
    }
    for (int i = 0; i < TEXTS; i++)
        memset(hold(1500), 'q', 1499);
    for (int i = 0; i < NUMBERS; i++) {
        double *numbers = hold(300 * sizeof *numbers);
        for (int at = 0; at < 300; at++)
            numbers[at] = (i + 1) * 0.37 * at - 40;
    }
    for (int i = 0; i < DENSE; i++) {
        void **pointers = hold(200 * sizeof *pointers);
        for (int at = 0; at < 200; at++)
            pointers[at] = first[(at * 7 + i) % SAME];
    }
    for (int i = 0; i < BLANKS; i++)
        hold(8192);
    for (int i = 0; i < OTHERS; i++) {
        unsigned char *bytes = hold(800);
        for (int at = 0; at < 800; at++) {
            bytes[at] = (unsigned char) (stage_random(&state) | 0x80);
        }
    }
    for (int i = 0; i < PLACED; i++) {
        unsigned char *bytes = placed[i] = calloc(1, 1024);
        for (int at = 0; at < 1024; at++)
            bytes[at] = (unsigned char) (at * 31 | 0x81);
    }
    stage_ready(1);
    return stage_command() == 0;
}
