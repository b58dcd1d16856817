/* Blocks that one frame each holds: two functions, a signal handler above them, and a thread-local variable. Records: name, address. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static FILE *record;
static _Thread_local volatile long before[5];
_Thread_local struct { long some; void *volatile block; } t_holder;

static void *made(const char *name, size_t size)
{
    void *block = calloc(1, size);
    fprintf(record, "%s %p\n", name, block);
    return block;
}

__attribute__((noinline)) void handles(int number)
{
    void *volatile held = made("handles", 3000);
    fclose(record);
    if (write(1, "ready\n", 6) != 6)
        _exit(number);
    for (;;)
        pause();
    (void) held;
}

__attribute__((noinline)) int calls_inner(int number)
{
    void *volatile held = made("calls_inner", 1000);
    before[1] = number;
    raise(SIGUSR1);
    return number + (held != NULL);
}

__attribute__((noinline)) int calls_outer(int number)
{
    void *volatile held = made("calls_outer", 2000);
    return calls_inner(number + 1) + (held != NULL);
}

static void *begin(void *unused)
{
    t_holder.block = made("t_holder", 4000);
    calls_outer(1);
    return unused;
}

int main(int argc, char **argv)
{
    pthread_t thread;
    if (argc < 2 || !(record = fopen(argv[1], "w")))
        return 1;
    setvbuf(record, NULL, _IONBF, 0);
    signal(SIGUSR1, handles);
    pthread_create(&thread, NULL, begin, NULL);
    pthread_join(thread, NULL);
    return 0;
}
