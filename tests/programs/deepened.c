/* deepened RECORD [MIB]

   Threads that were deep in their stacks once: some wait near the top, two on a stack of malloc's as coroutines do, two in a signal handler on
   a stack of its own. The record: for each thread, the main one last, its lwp, where its stack begins and ends, the lowest address that it
   touched, and where it is now; 0 there: on another stack. MIB: stacks of so many MiB lie side by side in one mapping, without guards between
   them, as where libc 2.42 makes these; below them lies a table, which holds a block of HELD_BYTES.

   Commands: none. */

#include "stage.h"
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <ucontext.h>

#define THREADS 12
#define OTHER_BYTES (64 << 10)
#define FRAMES 600
#define TABLE_BYTES (1 << 20)
#define HELD_BYTES 54321

struct thread {
    uint64_t lwp, start, end, lowest, now;
};

static struct thread *threads;
static pthread_barrier_t all;
static void **table;
static ucontext_t back[THREADS], there[THREADS];

__attribute__((noinline)) static uint64_t deepen(int left)
{
    volatile char room[4096];

    memset((void *)room, left | 1, sizeof room);
    uint64_t lowest = left ? deepen(left - 1) : (uint64_t)(uintptr_t)room;
    return lowest + (room[left] == 0);
}

static void waits(void)
{
    pthread_barrier_wait(&all);
    for (;;)
        pause();
}

static void handles(int number)
{
    (void)number;
    waits();
}

static void begin(struct thread *own)
{
    pthread_attr_t attributes;
    void *stack;
    size_t size;

    pthread_getattr_np(pthread_self(), &attributes);
    pthread_attr_getstack(&attributes, &stack, &size);
    pthread_attr_destroy(&attributes);
    own->lwp = (uint64_t)syscall(SYS_gettid);
    own->start = (uint64_t)(uintptr_t)stack;
    own->end = own->start + size;
    own->lowest = deepen(FRAMES);
    own->now = (uint64_t)(uintptr_t)__builtin_frame_address(0);
}

static void *work(void *argument)
{
    size_t number = (size_t)argument;
    struct thread *own = &threads[number];

    stage_forget_vectors(); /* a thread begins with its parent's */
    begin(own);
    if (number < 2) {
        own->now = 0;
        getcontext(&there[number]);
        there[number].uc_stack.ss_sp = calloc(1, OTHER_BYTES);
        there[number].uc_stack.ss_size = OTHER_BYTES;
        makecontext(&there[number], waits, 0);
        swapcontext(&back[number], &there[number]);
    } else if (number < 4) {
        stack_t other = {.ss_sp = calloc(1, OTHER_BYTES), .ss_size = OTHER_BYTES};
        own->now = 0;
        sigaltstack(&other, NULL);
        raise(SIGUSR1);
    }
    waits();
    return NULL;
}

int main(int argc, char **argv)
{
    struct sigaction action = {.sa_handler = handles, .sa_flags = SA_ONSTACK};
    pthread_attr_t attributes;
    pthread_t thread;
    size_t stack_bytes = argc == 3 ? (size_t)atoi(argv[2]) << 20 : 0;

    if (argc < 2)
        stage_fail("usage: deepened RECORD [MIB]");
    pthread_attr_init(&attributes);
    if (stack_bytes) {
        table = mmap(NULL, TABLE_BYTES + THREADS * stack_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (table == MAP_FAILED)
            stage_fail("no room");
        madvise(table, TABLE_BYTES + THREADS * stack_bytes, MADV_NOHUGEPAGE);
        table[100] = malloc(HELD_BYTES);
    }
    threads = stage_record(argv[1], (THREADS + 1) * sizeof *threads);
    sigaction(SIGUSR1, &action, NULL);
    pthread_barrier_init(&all, NULL, THREADS + 1);
    for (size_t number = 0; number < THREADS; number++) {
        if (stack_bytes)
            pthread_attr_setstack(&attributes, (char *)table + TABLE_BYTES + number * stack_bytes, stack_bytes);
        if (pthread_create(&thread, &attributes, work, (void *)number))
            stage_fail("no thread");
    }
    begin(&threads[THREADS]);
    pthread_barrier_wait(&all);
    stage_deepen();
    stage_forget_vectors();
    stage_ready(1);
    for (;;)
        stage_command();
}
