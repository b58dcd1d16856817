/* ten_containers RECORD ELEMENTS THREADS: ten forms, each held by one global, while threads, requests and a table use elements. */
#include "truth.h"

#include <stddef.h>
#include <sys/queue.h>

struct plain { struct plain *prev, *next; char *text; long more[3]; };
struct queued { char *text; long more[4]; TAILQ_ENTRY(queued) link; };
struct listed { LIST_ENTRY(listed) link; char *text; long more[5]; };
struct head { struct head *next, *prev; };
struct inside { long id; char *text; long more[2]; struct head link; };
struct leaf { struct leaf *left, *right, *parent; long key; char *text; };
struct cached { char *text; struct cached *chain; struct head used; long key; };
struct cache { long count, size; struct cached **buckets; struct head used; };
struct tower { char *text; long key; int height; struct tower *next[]; };
struct page { int count, leafs; char *values[15]; struct page *below[16]; };
struct slot { long hash; char *value; };
struct table { long count, size; struct slot *slots; };
struct waiting { STAILQ_ENTRY(waiting) link; char *text; long more[8]; };

/* The element of a ring behind this link; NULL behind the last one. */
#define AROUND(ring, type, field, link) ((link)->next == &(ring) ? NULL : (type *)((char *)(link)->next - offsetof(type, field)))

struct plain *g_null_list;
TAILQ_HEAD(, queued) g_tailq;
LIST_HEAD(, listed) g_list;
struct head g_ring;
struct leaf *g_tree;
struct cache *g_lru;
struct tower *g_skip;
struct page *g_btree;
struct table g_table;
STAILQ_HEAD(, waiting) g_queue;

static void append(struct head *ring, struct head *link)
{
    link->next = ring;
    link->prev = ring->prev;
    ring->prev->next = link;
    ring->prev = link;
}

static void build_lists(long count)
{
    for (long i = 0; i < count; i++) {
        struct plain *one = take(sizeof *one);
        one->text = take_text(80);
        one->next = g_null_list;
        if (g_null_list)
            g_null_list->prev = one;
        g_null_list = one;
        use(one);
    }
    OWNS(g_null_list);
    IN_ORDER(g_null_list, struct plain, g_null_list, one->next);
    TAILQ_INIT(&g_tailq);
    for (long i = 0; i < count; i++) {
        struct queued *one = take(sizeof *one);
        one->text = take_text(80);
        TAILQ_INSERT_TAIL(&g_tailq, one, link);
        use(one);
    }
    OWNS(g_tailq);
    IN_ORDER(g_tailq, struct queued, TAILQ_FIRST(&g_tailq), TAILQ_NEXT(one, link));
    for (long i = 0; i < count; i++) {
        struct listed *one = take(sizeof *one);
        one->text = take_text(80);
        LIST_INSERT_HEAD(&g_list, one, link);
        use(one);
    }
    OWNS(g_list);
    IN_ORDER(g_list, struct listed, LIST_FIRST(&g_list), LIST_NEXT(one, link));
    g_ring.next = g_ring.prev = &g_ring;
    for (long i = 0; i < count; i++) {
        struct inside *one = take(sizeof *one);
        one->text = take_text(80);
        append(&g_ring, &one->link);
        use(one);
    }
    OWNS(g_ring);
    IN_ORDER(g_ring, struct inside, AROUND(g_ring, struct inside, link, &g_ring), AROUND(g_ring, struct inside, link, &one->link));
    STAILQ_INIT(&g_queue);
    for (long i = 0; i < count; i++) {
        struct waiting *one = take(sizeof *one);
        one->text = take_text(80);
        STAILQ_INSERT_TAIL(&g_queue, one, link);
        use(one);
    }
    OWNS(g_queue);
    IN_ORDER(g_queue, struct waiting, STAILQ_FIRST(&g_queue), STAILQ_NEXT(one, link));
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
    use(one);
    one->left = tree(low, one->key, one);
    one->right = tree(one->key + 1, high, one);
    return one;
}

static struct page *pages(long count)
{
    struct page *one = take(sizeof *one);
    long below = (count - 15) / 16;

    one->count = 15;
    one->leafs = below < 8;
    for (int i = 0; i < 15; i++)
        one->values[i] = take_text(80);
    for (int i = 0; i < 16 && !one->leafs; i++)
        one->below[i] = pages(below);
    use(one);
    return one;
}

static void build_trees(long count)
{
    struct tower *last[16];

    g_tree = tree(0, count, NULL);
    OWNS(g_tree);
    g_btree = pages(count);
    OWNS(g_btree);
    g_skip = take(sizeof *g_skip + 16 * sizeof *last);
    for (int i = 0; i < 16; i++)
        last[i] = g_skip;
    for (long i = 0; i < count; i++) {
        int height = 1;
        while (height < 16 && some(4) == 0)
            height++;
        struct tower *one = take(sizeof *one + height * sizeof *last);
        one->key = i;
        one->height = height;
        one->text = take_text(80);
        for (int level = 0; level < height; level++) {
            last[level]->next[level] = one;
            last[level] = one;
        }
        use(one);
    }
    memset(last, 0, sizeof last);
    __asm__ volatile("" : : "r"(last) : "memory");
    OWNS(g_skip);
    IN_ORDER(g_skip, struct tower, g_skip->next[0], one->next[0]);
}

static void build_tables(long count)
{
    g_lru = take(sizeof *g_lru);
    g_lru->size = count;
    g_lru->buckets = take(count * sizeof *g_lru->buckets);
    g_lru->used.next = g_lru->used.prev = &g_lru->used;
    for (long i = 0; i < count; i++) {
        struct cached *one = take(sizeof *one), **bucket = &g_lru->buckets[some(count)];
        one->text = take_text(80);
        one->chain = *bucket;
        *bucket = one;
        append(&g_lru->used, &one->used);
        use(one);
    }
    OWNS(g_lru);
    IN_ORDER(g_lru, struct cached, AROUND(g_lru->used, struct cached, used, &g_lru->used),
             AROUND(g_lru->used, struct cached, used, &one->used));
    g_table.size = 2 * count;
    g_table.slots = take(g_table.size * sizeof *g_table.slots);
    for (long i = 0; i < count; i++) {
        long place = some(g_table.size);
        while (g_table.slots[place].value)
            place = (place + 1) % g_table.size;
        g_table.slots[place].hash = i;
        g_table.slots[place].value = take_text(80);
        use(g_table.slots[place].value);
    }
    OWNS(g_table);
}

int main(int argc, char **argv)
{
    if (argc != 4)
        stage_fail("usage: ten_containers RECORD ELEMENTS THREADS");
    truth_begin(argv[1]);
    build_lists(atol(argv[2]));
    build_trees(atol(argv[2]));
    build_tables(atol(argv[2]));
    truth_ready(atoi(argv[3]));
}
