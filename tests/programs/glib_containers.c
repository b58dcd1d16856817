/* glib_containers RECORD ELEMENTS THREADS: the containers of GLib. Its own blocks are counted by a malloc in front of the allocator's; nodes
   that it cuts from slices, as before 2.76, by their number. */
#include "truth.h"

#include <dlfcn.h>
#include <glib.h>

struct item { long id; char *text; long more[4]; };
struct cache { GHashTable *index; GQueue *order; };

GList *g_list;
GSList *g_slist;
GQueue *g_queue;
GHashTable *g_hash;
GTree *g_tree;
GSequence *g_sequence;
GPtrArray *g_pointers;
GArray *g_items;
GNode *g_nodes;
struct cache *g_cache;

static void *next_one(const char *name, void **kept)
{
    if (!*kept)
        *kept = dlsym(RTLD_NEXT, name);
    return *kept;
}

static void *counted(void *made)
{
    taken += malloc_usable_size(made);
    return made;
}

void *malloc(size_t size)
{
    static void *kept;

    return counted(((void *(*)(size_t))next_one("malloc", &kept))(size));
}

void *calloc(size_t count, size_t size)
{
    static void *kept;

    return counted(((void *(*)(size_t, size_t))next_one("calloc", &kept))(count, size));
}

void *realloc(void *block, size_t size)
{
    static void *kept;

    taken -= malloc_usable_size(block);
    return counted(((void *(*)(void *, size_t))next_one("realloc", &kept))(block, size));
}

void free(void *block)
{
    static void *kept;

    taken -= malloc_usable_size(block);
    ((void (*)(void *))next_one("free", &kept))(block);
}

/* So many nodes of this size, if malloc did not give them. */
static void sliced(long count, size_t size)
{
    size_t before = taken;
    void *one = g_slice_alloc(size);

    if (taken == before)
        taken += count * ((size + 15) / 16 * 16);
    g_slice_free1(size, one);
}

static void work(void *element)
{
    size_t before = taken;

    use(element);
    taken = before;
}

static char *text(long number) { return g_strdup_printf("%0*ld", (int)(40 + number % 80), number); }

static struct item *item(long number)
{
    struct item *one = g_new0(struct item, 1);

    one->id = number;
    one->text = text(number);
    return one;
}

static gint compared(gconstpointer one, gconstpointer other, gpointer data)
{
    (void)data;
    return g_strcmp0(one, other);
}

static void build_lists(long count)
{
    for (long i = 0; i < count; i++) {
        g_list = g_list_prepend(g_list, item(i));
        work(g_list);
    }
    sliced(count, sizeof(GList));
    OWNS(g_list);
    for (long i = 0; i < count; i++) {
        g_slist = g_slist_prepend(g_slist, item(i));
        work(g_slist);
    }
    sliced(count, sizeof(GSList));
    OWNS(g_slist);
    g_queue = g_queue_new();
    for (long i = 0; i < count; i++) {
        g_queue_push_tail(g_queue, item(i));
        work(g_queue->tail);
    }
    sliced(count, sizeof(GList));
    OWNS(g_queue);
    g_sequence = g_sequence_new(NULL);
    for (long i = 0; i < count; i++)
        work(g_sequence_append(g_sequence, item(i)));
    sliced(count, 5 * sizeof(void *));
    OWNS(g_sequence);
}

static void build_tables(long count)
{
    g_hash = g_hash_table_new(g_str_hash, g_str_equal);
    for (long i = 0; i < count; i++) {
        struct item *one = item(i);
        g_hash_table_insert(g_hash, text(i), one);
        work(one);
    }
    OWNS(g_hash);
    g_pointers = g_ptr_array_new();
    for (long i = 0; i < count; i++) {
        g_ptr_array_add(g_pointers, item(i));
        work(g_ptr_array_index(g_pointers, i));
    }
    OWNS(g_pointers);
    g_items = g_array_new(FALSE, TRUE, sizeof(struct item));
    for (long i = 0; i < count; i++) {
        struct item one = {i, text(i), {0}};
        g_array_append_val(g_items, one);
        work(one.text);
    }
    OWNS(g_items);
    g_cache = g_new0(struct cache, 1);
    g_cache->index = g_hash_table_new(g_str_hash, g_str_equal);
    g_cache->order = g_queue_new();
    for (long i = 0; i < count; i++) {
        struct item *one = item(i);
        g_queue_push_head(g_cache->order, one);
        g_hash_table_insert(g_cache->index, one->text, g_cache->order->head);
        work(g_cache->order->head);
    }
    sliced(count, sizeof(GList));
    OWNS(g_cache);
}

static void build_trees(long count)
{
    GNode **all = (GNode **)stage_pages(count * sizeof *all);

    g_tree = g_tree_new_full(compared, NULL, NULL, NULL);
    for (long i = 0; i < count; i++) {
        struct item *one = item(i * 7919 % 65537);
        g_tree_insert(g_tree, one->text, one);
        work(one);
    }
    sliced(count, 5 * sizeof(void *));
    OWNS(g_tree);
    for (long i = 0; i < count; i++) {
        all[i] = g_node_new(item(i));
        work(all[i]);
        if (i)
            g_node_prepend(all[some(i < 6 ? i : i / 3)], all[i]);
    }
    g_nodes = all[0];
    munmap(all, count * sizeof *all);
    sliced(count, sizeof(GNode));
    OWNS(g_nodes);
}

int main(int argc, char **argv)
{
    if (argc != 4)
        stage_fail("usage: glib_containers RECORD ELEMENTS THREADS");
    truth_begin(argv[1]);
    taken = 0;
    build_lists(atol(argv[2]));
    build_tables(atol(argv[2]));
    build_trees(atol(argv[2]));
    truth_ready(atoi(argv[3]));
}
