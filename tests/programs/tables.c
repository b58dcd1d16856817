/* tables RECORD: structures whose second word points to a constant, next to others whose pointers say nothing. */

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

struct methods {
    int (*open)(const char *);
    int (*close)(int);
};

struct handle {
    long number;
    const struct methods *methods;
    char room[80];
};

struct node {
    struct node *next;
    char *text;
    FILE *const *stream;
    char room[160];
};

static int opens(const char *name)
{
    return name != NULL;
}

static int closes(int number)
{
    return number;
}

const struct methods many_methods = {opens, closes};
const struct methods few_methods = {opens, closes};
const struct methods sized_methods = {opens, closes};

static void *made(size_t bytes, const struct methods *methods, long number)
{
    struct handle *handle = calloc(1, bytes);
    handle->number = number;
    handle->methods = methods;
    return handle;
}

int main(void)
{
    static void *kept[400];
    static struct node *nodes;
    char byte;
    int number;

    for (number = 0; number < 200; number++)
        kept[number] = made(sizeof(struct handle), &many_methods, number);
    for (number = 0; number < 3; number++)
        kept[200 + number] = made(sizeof(struct handle), &few_methods, number);
    for (number = 0; number < 50; number++)         /* no two of one size: not one kind */
        kept[203 + number] = made(400 + 16 * (size_t) number, &sized_methods, number);
    for (number = 0; number < 100; number++) {
        struct node *node = calloc(1, sizeof *node);
        node->next = nodes;
        node->text = "a text is no table";
        node->stream = (FILE *const *) &stdout;      /* of libc */
        nodes = node;
    }
    puts("ready");
    fflush(stdout);
    return read(0, &byte, 1) != 1 || !kept[0];
}
