/* Tasks with a name inside, a pointer to the name of their owner, and a number that looks like nothing: it begins with a magic number, as
   BIND's structures do. */
#include "stage.h"

#include <stdio.h>
#include <stdlib.h>

enum { MANY = 6000, RESOLVERS = 700, CLIENTS = 30 };

struct task {
    uint64_t magic;             /* 'Task' */
    struct task *next;
    uint64_t number;
    char name[16];
    const char *owner;
    uint32_t references;        /* its last byte is no zero */
    char state[20];             /* behind a number of four bytes */
    struct task *previous;      /* to what begins with letters, and is no text */
    char rest[600];
    char last[16];
};

static struct task *volatile first;

int main(void)
{
    for (int i = 0; i < MANY; i++) {
        struct task *task = calloc(1, sizeof *task);
        task->magic = 'T' << 24 | 'a' << 16 | 's' << 8 | 'k';
        task->number = (uint64_t) i * 0x9e3779b97f4a7c15u;
        strcpy(task->name, i < CLIENTS ? "client\x1b[31m" : i < CLIENTS + RESOLVERS ? "resolver" : "zone");
        char *owner = malloc(32);
        snprintf(owner, 32, "view %d", i % 3);
        task->owner = owner;
        task->references = 0xff000001;
        strcpy(task->state, i % 2 ? "running long" : "idle");
        strcpy(task->last, i % 5 ? "some" : "others");
        task->next = task->previous = first;
        first = task;
    }
    stage_ready(1);
    return stage_command() == 0;
}
