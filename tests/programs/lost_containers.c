/* lost_containers RECORD ELEMENTS: containers that nothing holds any more, and some lost objects that know elements of them.

   The record has a line a container: `lost KIND BYTES ELEMENTS 0` (it has so many elements, and all that hangs behind it so many bytes). */
#include "truth.h"

struct node { struct node *next, *prev; char *text; long more[4]; };
struct chained { struct chained *next; char *text; long more[2]; };
struct leaf { struct leaf *left, *right, *parent; long key; char *text; long more[5]; };
struct entry { struct entry *chain; char *key; long hash; long more[7]; };
struct table { long count, size; struct entry **buckets; };
struct queue { struct node *first, *last; long count; };
struct cursor { long id; struct node *at; long more[10]; };

void *volatile g_last; /* the compiler keeps what is only written */

static void lose(const char *kind, void *what, uintptr_t elements)
{
    g_last = what;
    tell("lost", kind, taken, (const void *)elements, 0);
    taken = 0;
}

static struct leaf *tree(long low, long high, struct leaf *parent)
{
    struct leaf *one;

    if (low >= high)
        return NULL;
    one = take(sizeof *one);
    one->key = (low + high) / 2;
    one->text = take_text(80);
    one->parent = parent;
    one->left = tree(low, one->key, one);
    one->right = tree(one->key + 1, high, one);
    return one;
}

static void append(struct queue *queue)
{
    struct node *one = take(sizeof *one);

    one->text = take_text(300);
    one->prev = queue->last;
    *(queue->last ? &queue->last->next : &queue->first) = one;
    queue->last = one;
    queue->count++;
}

static __attribute__((noinline)) void build(long count)
{
    struct chained *chain = NULL, *link;
    struct queue ends = {NULL, NULL, 0}, *queue;
    struct node *ring;
    struct table *table = take(sizeof *table);
    struct cursor *cursor;

    table->size = count;
    table->buckets = take(count * sizeof *table->buckets);
    for (long i = 0; i < count; i++) {
        struct entry *one = take(sizeof *one), **bucket = &table->buckets[some(count)];
        one->key = take_text(60);
        one->chain = *bucket;
        *bucket = one;
    }
    lose("hash-table", table, count);
    for (long i = 0; i < count; i++) {
        link = take(sizeof *link);
        link->text = take_text(600);
        link->next = chain;
        chain = link;
    }
    lose("list", chain, count);
    for (long i = 0; i < count; i++)
        append(&ends);
    lose("list", ends.first, count);
    for (int i = 1; i < 4; i++) {
        cursor = take(sizeof *cursor);
        cursor->at = ends.first->next->next;
        ends.first = cursor->at;
        g_last = cursor;
    }
    taken = 0;
    queue = take(sizeof *queue);
    for (long i = 0; i < count; i++)
        append(queue);
    lose("list", queue, count);
    ring = take(sizeof *ring);
    ring->next = ring->prev = ring;
    for (long i = 1; i < count; i++) {
        struct node *one = take(sizeof *one);
        one->text = take_text(200);
        one->prev = ring->prev;
        one->next = ring;
        ring->prev = ring->prev->next = one;
    }
    lose("list", ring, count);
    lose("tree", tree(0, count, NULL), count);
    g_last = NULL;
}

/* What build() has left on the stack and in registers. */
static __attribute__((noinline)) void clear(void)
{
    volatile char stack[16384];

    for (size_t i = 0; i < sizeof stack; i++)
        stack[i] = 0;
}

int main(int argc, char **argv)
{
    if (argc != 3)
        stage_fail("usage: lost_containers RECORD ELEMENTS");
    truth_begin(argv[1]);
    build(atol(argv[2]));
    clear();
    truth_ready(0);
}
