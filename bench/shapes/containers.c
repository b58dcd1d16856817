/* containers BLOCKS [shuffled]: lists, search trees and hash tables of 100,000 elements, half of which have a value of their own. Elements
   are as far apart as their neighbours in memory, or anywhere among all of their size. */
#define _DEFAULT_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ELEMENTS 100000ul
#define BUCKETS 65536ul

struct element { struct element *links[3]; void *value; long key; };    /* a list's next, previous; a tree's left, right, parent; a chain's next */
struct container { struct element *first, *last; struct element **table; };

static struct container held[1024];
static unsigned long long seed = 88172645463325252ull;

static size_t draw(size_t below)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return (size_t) (seed >> 11) % below;
}

static void shuffle(void **all, size_t count)
{
    for (size_t i = count; i > 1; i--) {
        const size_t other = draw(i);
        void *kept = all[i - 1];
        all[i - 1] = all[other];
        all[other] = kept;
    }
}

int main(int argc, char **argv)
{
    const size_t blocks = argc > 1 ? strtoul(argv[1], NULL, 0) : 0, elements = blocks * 2 / 3, values = blocks - elements;
    struct element **all = malloc((elements + 1) * sizeof *all);
    void **of_values = malloc((values + 1) * sizeof *of_values);
    if (!all || !of_values || elements / ELEMENTS >= 1024)
        return 2;
    for (size_t i = 0, made = 0; i < elements; i++) {
        const size_t kind = i / ELEMENTS % 3;
        all[i] = calloc(1, argc > 2 ? 56 : 40 + 16 * kind);
        if (i % 2 && made < values)
            of_values[made++] = calloc(1, 24);
    }
    if (argc > 2) {
        shuffle((void **) all, elements);
        shuffle(of_values, elements / 2 < values ? elements / 2 : values);
    }
    for (size_t i = 0; i < elements; i++) {
        const size_t first = i / ELEMENTS * ELEMENTS, place = i - first, kind = i / ELEMENTS % 3;
        struct container *container = &held[i / ELEMENTS];
        struct element *element = all[i];
        if (i % 2 && i / 2 < values)
            element->value = of_values[i / 2];
        if (kind == 2) {
            if (!place)
                container->table = calloc(BUCKETS, sizeof *container->table);
            struct element **bucket = &container->table[draw(BUCKETS)];
            element->links[0] = *bucket;
            *bucket = element;
        } else if (!place) {
            container->first = element;
        } else if (kind == 1) {
            struct element *parent = all[first + (place - 1) / 2];
            element->links[2] = parent;
            parent->links[(place - 1) % 2] = element;
        } else {
            element->links[1] = container->last;
            container->last->links[0] = element;
        }
        container->last = kind ? NULL : element;
    }
    explicit_bzero(all, elements * sizeof *all);
    explicit_bzero(of_values, values * sizeof *of_values);
    puts("ready");
    fflush(stdout);
    pause();
}
