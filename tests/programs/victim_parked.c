/* victim_parked RECORD STATE

   A process that waits in a state in which nobody may call into it, until the test sets `go`; then it goes on and counts what it serves.

   malloc         a thread inside malloc, which holds its arena's mutex, and is stopped by a page that may not be written for now
   malloc-single  the same in a program of one thread, where malloc takes no mutex
   handler        a thread in a signal handler that came in the middle of malloc; at the top of its stack is nanosleep
   atfork         a thread inside fork, in a handler of pthread_atfork
   damaged        the heap is damaged: malloc_trim would end the process
   pending        signals wait for a thread and for the process, which block them
   vfork          between vfork and exec: child and parent share their memory; the record names the child
   busy           no thread is ever in a system call
   inline         no thread is in a system call of libc's; all are in inlined ones, with values in vector registers
   coroutine      the only thread runs on a stack that the program made itself
   idle           a thread that sleeps; nothing speaks against a call
   ending         the main thread ends the program and waits in a destructor, which the dynamic linker calls
   hooks          (jemalloc) a thread inside arenas.create, in an extent hook of its own, which holds ctl_mtx
   hooked         (jemalloc) an arena has extent hooks of the program's own; nobody is inside, nothing is locked */

#include "stage.h"
#include "victim_registers.h"
#include <errno.h>
#include <linux/userfaultfd.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <ucontext.h>

struct record {
    _Atomic uint64_t go;      /* the test: leave the state, and serve */
    uint64_t lwp;             /* of the thread in question */
    uint64_t served, wrong;   /* by every thread that serves, since it left the state */
    uint64_t pending;         /* signals that came, once unblocked */
    uint64_t child;
    uint64_t page;            /* that may not be written */
};

static struct record *record;
static _Atomic int parked;
static char *guarded; /* the page that may not be written */
static int fault_fd;

/* Room to sleep in, without a signal or the heap. */
static void wait_for_go(void)
{
    struct timespec time = {0, 5000000};

    while (!atomic_load(&record->go))
        nanosleep(&time, NULL);
}

static void serve(void)
{
    uint64_t random = 5;

    for (;;) {
        size_t size = stage_request(&random), i;
        unsigned char *block = malloc(size);

        memset(block, (int)(size & 255), size);
        for (i = 0; i < size; i += 61)
            record->wrong += block[i] != (size & 255);
        free(block);
        record->served++;
        usleep(1000);
    }
}

/* ---------------------------------------------------------------------------------------------------- in the middle of malloc */

/* A page inside the heap where malloc will write the header of what is left: the next page boundary above the highest block, minus
   what brings the header there. Returns the request that does it. */
static size_t aim(void)
{
    char *block = malloc(2000), *page;

    page = (char *)(((uintptr_t)block + 3 * 4096) & ~(uintptr_t)4095);
    free(block);
    block = malloc(2000); /* where the next blocks are cut from top */
    memset(page, 0, 1);
    guarded = page;
    return (size_t)(page - (block + malloc_usable_size(block))) + 64;
}

static void protect_by_fault(void)
{
    struct uffdio_api api = {.api = UFFD_API, .features = UFFD_FEATURE_PAGEFAULT_FLAG_WP};
    struct uffdio_register range = {.range = {(uintptr_t)guarded, 4096}, .mode = UFFDIO_REGISTER_MODE_WP};
    struct uffdio_writeprotect protect = {.range = {(uintptr_t)guarded, 4096}, .mode = UFFDIO_WRITEPROTECT_MODE_WP};

    if (ioctl(fault_fd, UFFDIO_API, &api) != 0 || ioctl(fault_fd, UFFDIO_REGISTER, &range) != 0 || ioctl(fault_fd, UFFDIO_WRITEPROTECT, &protect) != 0)
        stage_fail("no userfaultfd: the page cannot be guarded");
}

/* Another process, because a program of one thread cannot wake itself; it holds a descriptor of this one's memory. */
static void start_helper(void)
{
    pid_t parent = getpid();

    fault_fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC);
    if (fault_fd < 0)
        stage_fail("no userfaultfd: not permitted here");
    record->child = (uint64_t)fork();
    if (record->child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
            _exit(0);
        wait_for_go();
        /* `guarded` was not known yet when this process was made */
        struct uffdio_writeprotect protect = {.range = {record->page, 4096}};
        ioctl(fault_fd, UFFDIO_WRITEPROTECT, &protect);
        for (;;)
            pause();
    }
}

static void *inside_malloc(void *unused)
{
    size_t size = aim();
    char *volatile block;

    (void)unused;
    record->lwp = (uint64_t)syscall(SYS_gettid);
    record->page = (uint64_t)(uintptr_t)guarded;
    protect_by_fault();
    atomic_store(&parked, 1);
    block = malloc(size); /* waits in here */
    block[0] = 1;
    atomic_store(&parked, 2);
    serve();
    return NULL;
}

static void on_fault(int number, siginfo_t *info, void *context)
{
    (void)number;
    (void)context;
    if ((char *)((uintptr_t)info->si_addr & ~(uintptr_t)4095) != guarded)
        stage_fail("another fault than the one that was laid");
    atomic_store(&parked, 1);
    wait_for_go();
    mprotect(guarded, 4096, PROT_READ | PROT_WRITE);
}

static void *inside_handler(void *unused)
{
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
    size_t size = aim();
    char *volatile block;

    (void)unused;
    record->lwp = (uint64_t)syscall(SYS_gettid);
    sigaction(SIGSEGV, &action, NULL);
    mprotect(guarded, 4096, PROT_READ);
    block = malloc(size); /* waits in the handler */
    block[0] = 1;
    atomic_store(&parked, 2);
    serve();
    return NULL;
}

/* ---------------------------------------------------------------------------------------------------- fork, vfork, signals, hooks */

static void before_fork(void)
{
    atomic_store(&parked, 1);
    wait_for_go();
}

static void *inside_fork(void *unused)
{
    pid_t child;

    (void)unused;
    record->lwp = (uint64_t)syscall(SYS_gettid);
    pthread_atfork(before_fork, NULL, NULL);
    child = fork();
    if (child == 0)
        _exit(0);
    serve();
    return NULL;
}

static void *inside_vfork(void *unused)
{
    pid_t child;

    (void)unused;
    record->lwp = (uint64_t)syscall(SYS_gettid);
    child = vfork();
    if (child == 0) {
        record->child = (uint64_t)getpid();
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
        atomic_store(&parked, 1);
        wait_for_go();
        _exit(0);
    }
    serve();
    return NULL;
}

static void on_signal(int number)
{
    record->pending += number == SIGUSR1 ? 1 : 1000;
}

static void *with_pending(void *unused)
{
    struct sigaction action = {.sa_handler = on_signal};
    sigset_t both;

    (void)unused;
    record->lwp = (uint64_t)syscall(SYS_gettid);
    sigemptyset(&both);
    sigaddset(&both, SIGUSR1);
    sigaddset(&both, SIGRTMIN);
    sigaction(SIGUSR1, &action, NULL);
    sigaction(SIGRTMIN, &action, NULL);
    syscall(SYS_tgkill, getpid(), (int)record->lwp, SIGUSR1);
    kill(getpid(), SIGRTMIN);
    kill(getpid(), SIGRTMIN);
    kill(getpid(), SIGRTMIN);
    atomic_store(&parked, 1);
    wait_for_go();
    pthread_sigmask(SIG_UNBLOCK, &both, NULL);
    serve();
    return NULL;
}

#ifdef HELD
static void *busy(void *unused)
{
    struct held held;
    uint64_t turn = 1;

    (void)unused;
    record->lwp = (uint64_t)syscall(SYS_gettid);
    atomic_store(&parked, 1);
    for (; !atomic_load(&record->go); turn++) {
        held_prepare(&held, turn);
        held_loop(&held, 200000);
        held_run(&held);
        record->wrong += held_wrong(&held);
    }
    serve();
    return NULL;
}

static void *in_inlined(void *unused)
{
    struct timespec time = {0, 5000000};
    struct held held;
    uint64_t turn = 1;

    (void)unused;
    record->lwp = (uint64_t)syscall(SYS_gettid);
    atomic_store(&parked, 1);
    for (; !atomic_load(&record->go); turn++) {
        held_prepare(&held, turn);
        held.in[NUMBER] = SYS_nanosleep;
        held.in[FIRST] = (uint64_t)&time;
        held.in[SECOND] = 0;
        held_run(&held);
        record->wrong += held_wrong(&held);
    }
    serve();
    return NULL;
}
#endif

static bool ending;

static void __attribute__((destructor)) at_end(void)
{
    if (ending) {
        atomic_store(&parked, 1);
        wait_for_go();
        serve();
    }
}

static void *say_ready(void *unused)
{
    (void)unused;
    while (!atomic_load(&parked))
        usleep(1000);
    usleep(20000);
    stage_ready(1);
    for (;;)
        pause();
}

static ucontext_t outside, within;

static void on_own_stack(void)
{
    stage_ready(1);
    wait_for_go();
    serve();
}

static void coroutine(void)
{
    record->lwp = (uint64_t)getpid();
    getcontext(&within);
    within.uc_stack.ss_sp = stage_pages(1 << 18);
    within.uc_stack.ss_size = 1 << 18;
    makecontext(&within, on_own_stack, 0);
    swapcontext(&outside, &within);
}

static void *idle(void *unused)
{
    (void)unused;
    record->lwp = (uint64_t)syscall(SYS_gettid);
    atomic_store(&parked, 1);
    wait_for_go();
    serve();
    return NULL;
}

typedef struct hooks hooks;
struct hooks {
    void *(*alloc)(hooks *, void *, size_t, size_t, bool *, bool *, unsigned);
    void *rest[8]; /* none */
};
int mallctl(const char *, void *, size_t *, void *, size_t) __attribute__((weak));

static bool hook_waits;

static void *hook(hooks *unused, void *where, size_t bytes, size_t alignment, bool *zero, bool *commit, unsigned arena)
{
    char *place = mmap(NULL, bytes + alignment, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    (void)unused;
    (void)arena;
    if (where || place == MAP_FAILED)
        return NULL;
    if (hook_waits) {
        atomic_store(&parked, 1);
        wait_for_go();
    }
    *zero = *commit = true;
    return (void *)(((uintptr_t)place + alignment - 1) & ~(uintptr_t)(alignment - 1));
}

static void *inside_hook(void *unused)
{
    static hooks own = {.alloc = hook};
    hooks *address = &own;
    void *volatile first = malloc(100);
    unsigned arena;
    size_t length = sizeof arena;

    (void)unused;
    free(first);
    record->lwp = (uint64_t)syscall(SYS_gettid);
    if (!mallctl || mallctl("arenas.create", &arena, &length, &address, sizeof address) != 0)
        stage_fail("arenas.create failed");
    if (!hook_waits) {
        atomic_store(&parked, 1);
        wait_for_go();
    }
    serve();
    return NULL;
}

/* ---------------------------------------------------------------------------------------------------- */

/* Two large free chunks in the main arena, then a stray write into the first one's size: unlinking it would find that out. */
static void damage(void)
{
    volatile uintptr_t places[4];
    unsigned i;

    for (i = 0; i < 4; i++)
        places[i] = (uintptr_t)malloc(20000);
    free((void *)places[0]);
    free((void *)places[2]);
    ((volatile size_t *)places[2])[1] = 0x4141414141414141; /* bk */
    ((volatile size_t *)places[2])[0] = 0x4141414141414141; /* fd */
}

static void start_thread(void *(*work)(void *))
{
    pthread_t id;

    if (pthread_create(&id, NULL, work, NULL) != 0)
        stage_fail("a thread cannot be made");
}

int main(int argc, char **argv)
{
    const char *state = argc == 3 ? argv[2] : "";
    void *volatile first;
    sigset_t both;

    if (argc != 3)
        stage_fail("usage: victim_parked RECORD STATE");
    record = stage_record(argv[1], sizeof *record);
    signal(SIGINT, SIG_DFL); /* a shell ignores it for what it runs in the background, and this program inherits that */
    first = malloc(100);
    if (!strncmp(state, "malloc", 6))
        start_helper();
    if (!strcmp(state, "malloc-single")) {
        atomic_store(&parked, 1);
        stage_ready(1);
        inside_malloc(NULL);
    }
    if (!strcmp(state, "coroutine"))
        coroutine();
    if (!strcmp(state, "damaged")) {
        damage();
        stage_ready(1);
        record->lwp = (uint64_t)getpid();
        for (;; record->served++) /* without the heap */
            usleep(1000);
    }
    sigemptyset(&both);
    sigaddset(&both, SIGUSR1);
    sigaddset(&both, SIGRTMIN);
    pthread_sigmask(SIG_BLOCK, &both, NULL);
    if (!strcmp(state, "malloc"))
        start_thread(inside_malloc);
    else if (!strcmp(state, "handler"))
        start_thread(inside_handler);
    else if (!strcmp(state, "atfork"))
        start_thread(inside_fork);
    else if (!strcmp(state, "idle"))
        start_thread(idle);
    else if (!strcmp(state, "vfork"))
        start_thread(inside_vfork);
    else if (!strcmp(state, "pending"))
        start_thread(with_pending);
    else if (!strcmp(state, "hooks") || !strcmp(state, "hooked")) {
        hook_waits = !strcmp(state, "hooks");
        start_thread(inside_hook);
    }
    else if (!strcmp(state, "ending")) {
        ending = true;
        record->lwp = (uint64_t)getpid();
        start_thread(say_ready);
        exit(0);
    }
#ifdef HELD
    else if (!strcmp(state, "busy") || !strcmp(state, "inline")) {
        start_thread(!strcmp(state, "busy") ? busy : in_inlined);
        while (!atomic_load(&parked))
            usleep(1000);
        stage_ready(1);
        if (!strcmp(state, "busy"))
            busy(NULL);
        in_inlined(NULL);
    }
#endif
    else
        stage_fail("no such state");
    while (!atomic_load(&parked))
        usleep(1000);
    usleep(20000); /* the thread is where it waits; nothing outside it can tell */
    free(first);
    stage_ready(1);
    for (;;)
        stage_command();
}
