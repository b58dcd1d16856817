/* holders RECORD WORKERS [LIBRARY]: records which of its blocks are held, how, and which are lost: lines of `HOW ADDRESS SIZE GROUP`.

   HOW: held-WAY, leaked (GROUP: what it hangs behind), inside (only a pointer to its middle), end. Owners are volatile, so that the
   compiler keeps them; memory is cleaned before it is used, stacks after they were, so that no stale pointer holds what was lost. */
#include "stage.h"

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <ucontext.h>

#define CHAIN 50
#define HIDE 0x5a5a5a5a5a5a5a5aul

struct link { struct link *volatile next; uintptr_t fill[3]; };

static struct link *volatile g_chain;
static void *volatile g_inside;
static void *volatile g_tagged;
static void **volatile g_mapping;
static __thread void *volatile t_own;
static pthread_key_t keys[64];
static volatile int waiting;
static ucontext_t main_context, other_context;

/* Told at once, so that no table of them holds what was lost. */
static void tell(const char *how, uintptr_t hidden, size_t size, int group)
{
    printf("%s 0x%lx %zu %d\n", how, (unsigned long) (hidden ^ HIDE), size, group);
}

static void *block(size_t size) { void *made = malloc(size); memset(made, 0, size); return made; }

static __attribute__((noinline)) void scrub(void)
{
    volatile char room[64 << 10];
    for (size_t i = 0; i < sizeof room; i++)
        room[i] = 0;
    stage_forget_vectors();
}

/* CHAIN blocks, each holding the next; the first. */
static __attribute__((noinline)) struct link *chain(const char *how, int group)
{
    struct link *first = NULL;
    for (int i = 0; i < CHAIN; i++) {
        struct link *one = block(sizeof *one);
        one->next = first;
        first = one;
        tell(how, (uintptr_t) one ^ HIDE, sizeof *one, group);
    }
    return first;
}

static __attribute__((noinline)) void lose_chains(void)
{
    for (int i = 0; i < 20; i++)
        chain("leaked", i);
}

static __attribute__((noinline)) void lose_cycles(void)
{
    for (int i = 20; i < 40; i++) {
        struct link *first = chain("leaked", i), *last = first;
        while (last->next)
            last = last->next;
        last->next = first;
    }
}

static __attribute__((noinline)) void lose_singles(void)
{
    for (int i = 0; i < 1000; i++) {
        void *one = block(24 + 8 * (i % 50));
        tell("leaked", (uintptr_t) one ^ HIDE, 24 + 8 * (i % 50), 100 + i);
    }
}

static __attribute__((noinline)) void hold_from_data(void)
{
    g_chain = chain("held-global", 0);
    char *middle = block(400);
    tell("inside", (uintptr_t) middle ^ HIDE, 400, 0);
    g_inside = middle + 104;
    char *tagged = block(48);
    tell("held-tag", (uintptr_t) tagged ^ HIDE, 48, 0);
    g_tagged = tagged + 1;
}

/* A mapping that no other one touches. */
static void **apart(size_t size)
{
    size_t page = (size_t) sysconf(_SC_PAGESIZE);
    char *room = mmap(NULL, size + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mprotect(room + page, size, PROT_READ | PROT_WRITE))
        stage_fail("no mapping of its own");
    return (void **) (room + page);
}

static __attribute__((noinline)) void lose_mapping(void)
{
    void **lost = apart(1 << 20);
    for (int i = 0; i < 100; i++) {
        lost[5000 + i] = block(88);
        tell("lost-mapping", (uintptr_t) lost[5000 + i] ^ HIDE, 88, 0);
    }
    printf("mapping 0x%lx %d 0\n", (unsigned long) lost, 1 << 20);
}

static __attribute__((noinline)) void hold_from_mapping(void)
{
    void **map = apart(1 << 20);
    g_mapping = map + 100;
    for (int i = 0; i < 100; i++) {
        map[1000 + i] = block(72);
        tell("held-mapping", (uintptr_t) map[1000 + i] ^ HIDE, 72, 0);
    }
}

/* Holds by its stack, thread-local storage, keys of both levels, a register, a vector register; then waits. */
static void *work(void *argument)
{
    int number = (int) (intptr_t) argument;
    struct link *volatile on_stack = chain("held-stack", number);
    t_own = chain("held-tls", number);
    pthread_setspecific(keys[0], chain("held-key", number));
    pthread_setspecific(keys[63], chain("held-second-key", number));
    uintptr_t vector = (uintptr_t) chain("held-vector", number) ^ HIDE, general = (uintptr_t) chain("held-register", number) ^ HIDE;
    scrub();
    __atomic_add_fetch(&waiting, 1, __ATOMIC_SEQ_CST);
#if defined __x86_64__
    for (;;)    /* the two are in registers alone; the system call leaves rbx and xmm7 as they are */
        __asm__ volatile("xor %[hide], %[vector]\n xor %[hide], %[general]\n movq %[vector], %%xmm7\n mov %[general], %%rbx\n"
                         "xor %[vector], %[vector]\n xor %[general], %[general]\n"
                         "1: mov $34, %%eax\n syscall\n jmp 1b\n"
                         : [vector] "+r" (vector), [general] "+r" (general) : [hide] "r" (HIDE)
                         : "rax", "rbx", "rcx", "r11", "xmm7", "memory");
#elif defined __aarch64__
    for (;;)    /* x19 and d15 stay as they are; 73 is ppoll, of nothing and for ever */
        __asm__ volatile("eor %[vector], %[vector], %[hide]\n eor %[general], %[general], %[hide]\n"
                         "fmov d15, %[vector]\n mov x19, %[general]\n mov %[vector], xzr\n mov %[general], xzr\n"
                         "1: mov x0, xzr\n mov x1, xzr\n mov x2, xzr\n mov x3, xzr\n mov x4, xzr\n mov x8, #73\n svc #0\n b 1b\n"
                         : [vector] "+r" (vector), [general] "+r" (general) : [hide] "r" (HIDE)
                         : "x0", "x1", "x2", "x3", "x4", "x8", "x19", "v15", "memory");
#else
    (void) vector;
    (void) general;
    for (;;)
        pause();
#endif
    return (void *) on_stack;
}

/* Ends, and leaves its stack to the cache: what only that points to is lost. */
static void *ending(void *argument)
{
    struct link *volatile on_stack = chain("leaked", 2000 + (int) (intptr_t) argument);
    return on_stack ? NULL : NULL;
}

static void other(void)
{
    struct link *volatile here = chain("held-context", 0);
    scrub();
    swapcontext(&other_context, &main_context);
    g_chain = here;
}

static void hold_from_context(void)
{
    getcontext(&other_context);
    other_context.uc_stack.ss_sp = mmap(NULL, 1 << 18, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    other_context.uc_stack.ss_size = 1 << 18;
    other_context.uc_link = &main_context;
    makecontext(&other_context, other, 0);
    swapcontext(&main_context, &other_context);
}

static volatile sig_atomic_t handled;
static void handler(int number)
{
    struct link *volatile here = chain("held-alternate", number);
    handled = 1;
    for (;;)
        pause();
    g_chain = here;
}

static void *on_alternate(void *argument)
{
    stack_t stack = {0};
    stack.ss_sp = mmap(NULL, 1 << 18, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    stack.ss_size = 1 << 18;
    sigaltstack(&stack, NULL);
    struct link *volatile below = chain("held-below-alternate", 0);
    scrub();
    raise(SIGUSR1);
    return argument ? (void *) below : NULL;
}

/* What is freed and waits in caches holds nothing. */
static __attribute__((noinline)) void leave_in_caches(void)
{
    void *freed[7];
    for (int i = 0; i < 7; i++) {
        void **holder = block(520);
        holder[8] = block(136);
        tell("leaked", (uintptr_t) holder[8] ^ HIDE, 136, 3000 + i);
        freed[i] = holder;
    }
    for (int i = 0; i < 7; i++)
        free(freed[i]);
    memset(freed, 0, sizeof freed);
}

int main(int argc, char **argv)
{
    int out = dup(1), workers = argc > 2 ? atoi(argv[2]) : 4;
    if (!freopen(argv[1], "w", stdout))
        stage_fail("the record file cannot be made");
    setvbuf(stdout, stage_pages(1 << 16), _IOFBF, 1 << 16);     /* no block: its end would point to the block behind it */
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_ONSTACK};
    pthread_t thread;
    for (int i = 0; i < 64; i++)
        pthread_key_create(&keys[i], NULL);
    for (int i = 0; i < 3; i++) {
        pthread_create(&thread, NULL, ending, (void *) (intptr_t) i);
        pthread_join(thread, NULL);
    }
    lose_chains();
    lose_cycles();
    lose_singles();
    hold_from_data();
    hold_from_mapping();
    lose_mapping();
    hold_from_context();
    leave_in_caches();
    scrub();
    for (int i = 0; i < workers; i++) {
        pthread_create(&thread, NULL, work, (void *) (intptr_t) i);
        while (waiting <= i)
            usleep(1000);
    }
    sigaction(SIGUSR1, &action, NULL);
    pthread_create(&thread, NULL, on_alternate, argv);
    while (!handled)
        usleep(1000);
    if (argc > 3) {
        void **(*hold)(size_t) = (void **(*)(size_t)) dlsym(dlopen(argv[3], RTLD_NOW), "hold");
        void **held = hold(104);
        tell("held-dlopened-tls", (uintptr_t) *held ^ HIDE, 104, 0);
    }
    scrub();
    fflush(stdout);
    stage_ready(out);
    for (;;)
        pause();
}
