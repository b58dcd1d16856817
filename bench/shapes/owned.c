/* owned BLOCKS: a hash table, a tree with parent pointers, a list, a vector and strings, some of them with several owners, some lost. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct node { struct node *left, *right, *parent; char *name; };
struct entry { struct entry *next; char *key; struct node *value; };
struct list { struct list *next, *prev; long payload[2]; char *text; };

static struct entry **volatile table;
static struct node *volatile tree;
static struct list *volatile list;
static void **volatile vector;
static unsigned long long seed = 88172645463325252ull;
static size_t made;

static unsigned draw(void)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return (unsigned) (seed >> 11);
}

static char *text(void)
{
    size_t size = 8 + draw() % 200;
    char *made_here = malloc(size);
    memset(made_here, 'a' + (int) (draw() % 26), size - 1);
    made_here[size - 1] = 0;
    made++;
    return made_here;
}

static struct node *node(struct node *parent)
{
    struct node *made_here = calloc(1, sizeof *made_here);
    made_here->parent = parent;
    made_here->name = text();
    made++;
    return made_here;
}

static struct node *grow(struct node *parent, int depth)
{
    if (!depth)
        return NULL;
    struct node *made_here = node(parent);
    made_here->left = grow(made_here, depth - 1);
    made_here->right = grow(made_here, depth - 1);
    return made_here;
}

static void add_entry(size_t buckets, size_t *held, size_t room)
{
    struct entry *entry = calloc(1, sizeof *entry);
    unsigned bucket = draw() % buckets;
    entry->key = text();
    entry->next = table[bucket];
    table[bucket] = entry;
    made++;
    if (draw() % 2 && *held < room) {
        entry->value = calloc(1, sizeof *entry->value);
        entry->value->name = entry->key;
        vector[(*held)++] = entry->value;
        made++;
    }
}

static void add_member(void)
{
    struct list *member = calloc(1, sizeof *member), *head = list;
    member->text = text();
    member->prev = head->prev;
    member->next = head;
    head->prev->next = member;
    head->prev = member;
    made++;
}

int main(int argc, char **argv)
{
    const size_t wanted = argc > 1 ? strtoul(argv[1], NULL, 0) : 1000, buckets = wanted / 4 + 1, room = wanted / 4 + 2;
    size_t held = 0;
    int depth = 1;
    table = calloc(buckets, sizeof *table);
    vector = calloc(room, sizeof *vector);
    list = calloc(1, sizeof *list);
    list->next = list->prev = list;
    while ((1u << (depth + 1)) < wanted / 4)
        depth++;
    tree = grow(NULL, depth);
    while (made < wanted) {
        add_entry(buckets, &held, room);
        if (draw() % 4 == 0)
            add_member();
        if (draw() % 16 == 0) {     /* lost */
            struct node *lost = node(NULL);
            lost->left = node(lost);
        }
    }
    puts("ready");
    fflush(stdout);
    pause();
}
