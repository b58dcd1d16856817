/* A thread on a stack that malloc gave and nothing points to the begin of; what it holds there, and what is lost.
   Records: name, address, size. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>
#include <unistd.h>

#define BYTES (64 << 10)

static ucontext_t back, there;
static int told;
static FILE *record;

static void tell(const char *name, const void *address, size_t size)
{
    fprintf(record, "%s %p %zu\n", name, address, size);
}

static void runs(void)
{
    char *volatile held = calloc(1, 1000);
    tell("held", held, 1000);
    there.uc_stack.ss_sp = NULL;
    memset(&there, 0, sizeof there);
    memset(&back, 0, sizeof back);
    __atomic_store_n(&told, 1, __ATOMIC_RELEASE);
    for (;;)
        pause();
    held[0] = 1;
}

static void *begin(void *unused)
{
    void *stack = calloc(1, BYTES);
    tell("stack", stack, BYTES);
    getcontext(&there);
    there.uc_stack.ss_sp = stack;
    there.uc_stack.ss_size = BYTES;
    there.uc_link = &back;
    stack = NULL;
    makecontext(&there, runs, 0);
    swapcontext(&back, &there);
    return unused;
}

__attribute__((noinline)) static void lose(void)
{
    void *volatile lost = calloc(1, 2000);
    tell("lost", lost, 2000);
    lost = NULL;
}

__attribute__((noinline)) static void scrub(void)
{
    volatile char room[16 << 10];
    for (size_t i = 0; i < sizeof room; i++)
        room[i] = 0;
}

int main(int argc, char **argv)
{
    pthread_t thread;
    if (argc < 2 || !(record = fopen(argv[1], "w")))
        return 1;
    lose();
    pthread_create(&thread, NULL, begin, NULL);
    while (!__atomic_load_n(&told, __ATOMIC_ACQUIRE))
        usleep(1000);
    fclose(record);
    scrub();
    if (write(1, "ready\n", 6) != 6)
        return 1;
    for (;;)
        pause();
}
