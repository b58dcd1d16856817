/* counter_graphs RECORD THREADS: graphs that are no container, that two hold, or whose parts are owned one by one, with users as everywhere. */
#include "truth.h"

struct body { struct body *prev, *next; char *text; long more[20]; };
struct ast { struct ast *parent; long count; char *text; struct ast *below[]; };
struct plain { struct plain *to; char *text; long more[3]; };
struct mesh { struct mesh *around[4]; char *text; long more[2]; };
struct inner { struct inner *next; struct body *first, *last; };
struct session { struct server *server; struct session *prev, *next; char *text; long more[9]; };
struct server { char *name, *config; struct session *first, *last; };
struct person { struct person *best, *second; char *name; long more[10]; };
struct thing { char *text; long more[12]; };
struct ring { struct ring *next, *prev; char *text; long more[6]; };

struct body *g_ends_first, *g_apart[64], *g_ends_last; /* apart, so that nobody takes them for one head */
struct ast *g_module, *g_current;
struct plain **g_triples;
struct body *g_used, *g_idle;
struct mesh *g_mesh;
struct inner *g_outer;
struct server *g_server;
struct person **g_people;
struct thing **g_all, **g_third;
struct thing **g_twice_one, *g_between[64], **g_twice_other;
struct body *g_few;
struct ring *g_ring;

static struct body *prepend(struct body **first, struct body **last)
{
    struct body *one = take(sizeof *one);

    one->text = take_text(80);
    one->next = *first;
    if (*first)
        (*first)->prev = one;
    else if (last)
        *last = one;
    *first = one;
    use(one);
    return one;
}

static struct ast *ast(struct ast *parent, int depth)
{
    long count = depth == 5 ? 20 : depth ? some(7) : 0;
    struct ast *one = take(sizeof *one + count * sizeof one);

    one->parent = parent;
    one->count = count;
    one->text = take_text(80);
    use(one);
    for (long i = 0; i < count; i++) {
        size_t before = taken;
        one->below[i] = ast(one, depth - 1);
        if (depth == 5 && i == 3)
            tell("child", "function", taken - before, one->below[i], 0);
    }
    return one;
}

static void build_pairs(void)
{
    for (int i = 0; i < 2000; i++)
        prepend(&g_ends_first, &g_ends_last);
    MOST(g_ends_first, taken / 4);
    MOST(g_ends_last, taken / 4);
    taken = 0;
    g_twice_one = calloc(2000, sizeof *g_twice_one);
    g_twice_other = calloc(2000, sizeof *g_twice_other);
    for (int i = 0; i < 2000; i++) {
        g_twice_one[i] = g_twice_other[1999 - i] = take(sizeof **g_twice_one);
        g_twice_one[i]->text = take_text(80);
    }
    MOST(g_twice_one, taken / 4);
    MOST(g_twice_other, taken / 4);
    taken = 0;
    for (int i = 0; i < 3000; i++)
        prepend(&g_used, NULL);
    OWNS(g_used);
    for (int i = 0; i < 1500; i++)
        prepend(&g_idle, NULL);
    OWNS(g_idle);
    for (int i = 0; i < 6; i++)
        prepend(&g_few, NULL)->more[3] = (long)take(100000);
    OWNS(g_few);
}

static void build_trees(void)
{
    g_module = ast(NULL, 5);
    g_current = g_module->below[6];
    OWNS(g_module);
    g_triples = take(2000 * sizeof *g_triples);
    for (int i = 0; i < 2000; i++) {
        struct plain *three[3];
        size_t before = taken;
        for (int k = 0; k < 3; k++) {
            three[k] = take(sizeof **three);
            three[k]->text = take_text(80);
        }
        three[0]->to = three[1];
        three[1]->to = three[2];
        g_triples[i] = three[0];
        use(three[0]);
        if (i == 1000)
            tell("child", "triple", taken - before, three[0], 0);
    }
    OWNS(g_triples);
    for (int k = 0; k < 60; k++) {
        struct inner *one = take(sizeof *one);
        size_t before = taken;
        one->next = g_outer;
        g_outer = one;
        for (int i = 0; i < 60; i++)
            prepend(&one->first, &one->last);
        (void)before;
    }
    OWNS(g_outer);
}

static void build_graphs(void)
{
    struct mesh **grid = stage_pages(2500 * sizeof *grid);

    for (int i = 0; i < 2500; i++) {
        grid[i] = take(sizeof **grid);
        grid[i]->text = take_text(80);
        if (i % 50) {
            grid[i]->around[0] = grid[i - 1];
            grid[i - 1]->around[1] = grid[i];
        }
        if (i >= 50) {
            grid[i]->around[2] = grid[i - 50];
            grid[i - 50]->around[3] = grid[i];
        }
    }
    g_mesh = grid[0];
    munmap(grid, 2500 * sizeof *grid);
    OWNS(g_mesh);
    g_server = take(sizeof *g_server);
    g_server->name = take_text(80);
    g_server->config = take(50000);
    for (int i = 0; i < 3000; i++) {
        struct session *one = take(sizeof *one);
        one->server = g_server;
        one->text = take_text(80);
        one->prev = g_server->last;
        if (one->prev)
            one->prev->next = one;
        else
            g_server->first = one;
        g_server->last = one;
        use(one);
    }
    OWNS(g_server);
    g_people = take(3000 * sizeof *g_people);
    for (int i = 0; i < 3000; i++) {
        struct person *one = g_people[i] = take(sizeof *one);
        one->name = take_text(80);
        one->best = g_people[some(i + 1)];
        one->second = g_people[some(i + 1)];
        use(one);
    }
    OWNS(g_people);
    g_all = take(4000 * sizeof *g_all);
    g_third = calloc(1334, sizeof *g_third);
    for (int i = 0; i < 4000; i++) {
        struct thing *one = g_all[i] = take(sizeof *one);
        one->text = take_text(80);
        if (i % 3 == 0)
            g_third[i / 3] = one;
        use(one);
    }
    OWNS(g_all);
    struct ring *first = take(sizeof *first), *last = first;
    for (int i = 1; i < 2000; i++) {
        struct ring *one = take(sizeof *one);
        one->text = take_text(80);
        one->prev = last;
        last->next = one;
        last = one;
    }
    last->next = first;
    first->prev = last;
    g_ring = first->next->next;
    OWNS(g_ring);
}

int main(int argc, char **argv)
{
    if (argc != 3)
        stage_fail("usage: counter_graphs RECORD THREADS");
    truth_begin(argv[1]);
    build_pairs();
    build_trees();
    build_graphs();
    truth_ready(atoi(argv[2]));
}
