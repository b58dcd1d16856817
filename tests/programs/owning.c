/* owning RECORD LONG: records for each owner what it alone keeps alive: lines of `owner NAME ADDRESS BLOCKS BYTES`, and of places to ask
   for: `block NAME ADDRESS`. LONG: links of one long list, to which a chain of 300 blocks that have nothing in common leads; 0 for none.

   Owners are volatile, so that the compiler keeps them, and stand 256 bytes apart, so that they are told apart without symbols. Memory is
   cleaned before it is used, stacks after they were: no stale pointer takes part. */
#include "stage.h"

#include <malloc.h>
#include <pthread.h>
#include <stdio.h>

#define OWNER static volatile __attribute__((aligned(256)))
#define PAGE 4096
#define PAGES (16 * PAGE)
#define HIDE 0x5a5a5a5a5a5a5a5aul

struct pair { void *volatile first, *volatile second; uint64_t fill[2]; };
struct entry { struct entry *volatile next; char *volatile key, *volatile value; };
struct table { struct entry *volatile *volatile buckets; size_t count; };
struct tree { struct tree *volatile left, *volatile right, *volatile parent; char *volatile word; };
struct head { struct head *volatile next, *volatile prev; };
struct item { uint64_t fill[5]; char *volatile name; struct head links; };
struct vector { void *volatile *volatile items; size_t count, room; };
struct link { struct link *volatile next; uint64_t fill[2]; };
struct owner { struct link *volatile held; };

OWNER struct table *g_table;
OWNER struct tree *g_tree;
OWNER struct head g_list;
OWNER struct vector *g_vector;
OWNER struct pair g_one, g_other;
OWNER struct owner *g_mapping;
OWNER struct link *g_long;
static char apart[256] __attribute__((aligned(256)));
static __thread void *volatile t_own;
static volatile int waiting;

static int output;
static size_t blocks, bytes;

static void *block(size_t size)
{
    void *made = malloc(size);

    memset(made, 0, size);
    blocks++;
    bytes += malloc_usable_size(made);
    return made;
}

static void line(const char *what, const char *name, uintptr_t address, const char *rest)
{
    char text[200];
    int length = snprintf(text, sizeof text, "%s %s 0x%lx%s\n", what, name, (unsigned long)address, rest);

    if (write(output, text, (size_t)length) != length)
        stage_fail("the record cannot be written");
    memset(text, 0, sizeof text);
}

/* What was made since the last call is this owner's alone. */
static void owner(const char *name, volatile const void *address)
{
    char rest[100];

    snprintf(rest, sizeof rest, " %zu %zu", blocks, bytes);
    line("owner", name, (uintptr_t)address, rest);
    blocks = bytes = 0;
}

static __attribute__((noinline)) void scrub(void)
{
    volatile char room[64 << 10];

    for (size_t i = 0; i < sizeof room; i++)
        room[i] = 0;
    stage_forget_vectors();
}

/* `count` blocks, each holding the next; the first, hidden. */
static __attribute__((noinline)) uintptr_t chain(size_t count, const char *name)
{
    struct link *first = NULL;

    for (size_t i = 0; i < count; i++) {
        struct link *one = block(sizeof *one);
        if (!i && name)
            line("block", name, (uintptr_t)one, "");
        one->next = first;
        first = one;
    }
    return (uintptr_t)first ^ HIDE;
}

static __attribute__((noinline)) void make_table(void)
{
    struct table *made = block(sizeof *made);

    made->count = 512;
    made->buckets = block(made->count * sizeof *made->buckets);
    for (size_t i = 0; i < 4000; i++) {
        struct entry *one = block(sizeof *one);
        one->key = block(20 + i % 30);
        one->value = block(40 + i % 200);
        one->next = made->buckets[i % made->count];
        made->buckets[i % made->count] = one;
    }
    g_table = made;
    owner("g_table", &g_table);
}

static __attribute__((noinline)) struct tree *branch(struct tree *parent, int depth)
{
    struct tree *made = block(sizeof *made);

    made->parent = parent;
    made->word = block(33);
    if (depth) {
        made->left = branch(made, depth - 1);
        made->right = branch(made, depth - 1);
    } else {
        line("block", "leaf", (uintptr_t)made, "");
    }
    return made;
}

static __attribute__((noinline)) void make_list(void)
{
    struct head *last = (struct head *)&g_list;

    for (int i = 0; i < 3000; i++) {
        struct item *one = block(sizeof *one);
        one->name = block(50);
        one->links.prev = last;
        last->next = &one->links;
        last = &one->links;
    }
    last->next = (struct head *)&g_list;
    g_list.prev = last;
    owner("g_list", &g_list);
}

static __attribute__((noinline)) void make_vector(void)
{
    struct vector *made = block(sizeof *made);

    made->room = 4096;
    made->items = block(made->room * sizeof *made->items);
    for (made->count = 0; made->count < 2500; made->count++)
        made->items[made->count] = block(100);
    g_vector = made;
    owner("g_vector", &g_vector);
}

/* What both point to belongs to neither. */
static __attribute__((noinline)) void make_shared(void)
{
    void *both = (void *)(chain(700, "shared") ^ HIDE);

    g_one.second = both;
    g_other.second = both;
    owner("shared", both);
    g_one.first = (void *)(chain(40, NULL) ^ HIDE);
    owner("g_one", &g_one);
    g_other.first = (void *)(chain(30, NULL) ^ HIDE);
    owner("g_other", &g_other);
}

static __attribute__((noinline)) void make_mapping(void)
{
    struct owner *pages = (struct owner *)((char *)stage_pages(PAGES) + PAGE);

    if (mprotect((char *)pages - PAGE, PAGE, PROT_NONE) || mprotect((char *)pages + PAGES - 2 * PAGE, PAGE, PROT_NONE))
        stage_fail("the mapping cannot be set apart"); /* from others, into which the kernel would merge it */
    pages->held = (struct link *)(chain(350, "mapped") ^ HIDE);
    g_mapping = pages;
    owner("g_mapping", &g_mapping);
}

static __attribute__((noinline)) void make_lost(void)
{
    chain(60, "lost");
    owner("lost", NULL);
}

static void rest(void)
{
    waiting = 1;
    for (;;)
        pause();
}

static void *on_stack(void *unused)
{
    struct link *volatile mine;

    mine = (struct link *)(chain(450, "stacked") ^ HIDE);
    owner("stack", &mine);
    scrub();
    rest();
    return unused;
}

static void *thread_local(void *unused)
{
    t_own = (void *)(chain(550, "local") ^ HIDE);
    owner("thread-local", &t_own);
    scrub();
    rest();
    return unused;
}

static void *in_register(void *unused)
{
    uintptr_t hidden = chain(250, "registered");

    owner("register", NULL);
    scrub();
    __asm__ volatile("mov %0, %%r12\n\txor %1, %%r12\n\tmovl $1, (%2)\n1:\tmov $34, %%eax\n\tsyscall\n\tjmp 1b"
                     : : "r"(hidden), "r"(HIDE), "r"(&waiting) : "r12", "rax", "rcx", "r11", "memory");
    return unused;
}

static void start(void *(*body)(void *))
{
    pthread_t thread;

    waiting = 0;
    if (pthread_create(&thread, NULL, body, NULL))
        stage_fail("no thread");
    while (!waiting)
        usleep(1000);
}

int main(int count, char **arguments)
{
    size_t length = count > 2 ? strtoul(arguments[2], NULL, 10) : 0;

    output = open(arguments[1], O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (output < 0)
        stage_fail("the record cannot be made");
    apart[0] = 1;
    make_table();
    g_tree = branch(NULL, 10);
    owner("g_tree", &g_tree);
    make_list();
    make_vector();
    make_shared();
    make_mapping();
    if (length) {
        g_long = (struct link *)(chain(length, "last") ^ HIDE);
        for (size_t i = 0; i < 300; i++) {
            void *volatile *one = block(32 + 16 * i);
            one[7 * i % (4 + 2 * i)] = (void *)g_long;
            g_long = (struct link *)one;
        }
        owner("g_long", &g_long);
    }
    make_lost();
    start(on_stack);
    start(thread_local);
    start(in_register);
    scrub();
    stage_ready(1);
    for (;;)
        stage_command();
}
