/* owners RECORD FILE: memory of every kind that the split of `report` tells apart, each of a size of its own.

   FILE is mapped privately; its first 512 KiB are written, the rest is read. A child that was forked shares what was there. */

#include "stage.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/ipc.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <ucontext.h>

#define MIB ((size_t)1 << 20)
#define KIB ((size_t)1 << 10)

enum { MEMFD, SYSV, SHARED, POSIX, COPIED, CACHED, CODE, BSS, BRK, STACKS, COROUTINE, ENDED, PLAIN, MALLOC, LAZY, HUGETLB, FORKED, FIELDS };

static uint64_t *record;
static char zeroed[8 * MIB];
static ucontext_t thread_context, coroutine_context;
static pthread_barrier_t started;
static int lock[2];

static void *touch(void *at, size_t bytes)
{
    if (at == MAP_FAILED || at == (void *)-1)
        stage_fail("no memory");
    memset(at, 5, bytes);
    return at;
}

static void *shared(int fd, size_t bytes)
{
    return mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | (fd < 0 ? MAP_ANONYMOUS : 0), fd, 0);
}

static void make_shared(void)
{
    char name[64];
    int id, fd = (int)syscall(SYS_memfd_create, "frames", 0);

    if (fd < 0 || ftruncate(fd, 3 * MIB) != 0)
        stage_fail("no memfd");
    touch(shared(fd, 3 * MIB), 2 * MIB);
    record[MEMFD] = 2 * MIB;
    id = shmget(IPC_PRIVATE, 2 * MIB, IPC_CREAT | 0600);
    if (id < 0)
        stage_fail("no SysV memory");
    touch(shmat(id, NULL, 0), 2 * MIB);
    shmctl(id, IPC_RMID, NULL);
    record[SYSV] = 2 * MIB;
    touch(shared(-1, 5 * MIB), 5 * MIB);
    record[SHARED] = 5 * MIB;
    snprintf(name, sizeof name, "/dev/shm/gdbheapx-owners-%d", (int)getpid());
    fd = open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
    if (fd >= 0 && ftruncate(fd, MIB) == 0) {
        touch(shared(fd, MIB), MIB);
        record[POSIX] = MIB;
    }
    unlink(name);
}

static void make_file(const char *path)
{
    struct stat found;
    volatile char *at;
    size_t place, bytes;
    int fd = open(path, O_RDONLY);

    if (fd < 0 || fstat(fd, &found) != 0)
        stage_fail("the file cannot be opened");
    bytes = (size_t)found.st_size & ~(size_t)4095;
    at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    if (at == MAP_FAILED || bytes <= 512 * KIB)
        stage_fail("the file is too small");
    for (place = 0; place < bytes; place += 4096) {
        if (place < 512 * KIB)
            at[place] = 1;
        else
            (void)at[place];
    }
    record[COPIED] = 512 * KIB;
    record[CACHED] = bytes - 512 * KIB;
}

static void make_private(void)
{
    void *code = mmap(NULL, MIB, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    void *huge, *lazy;

    if (code != MAP_FAILED) {
        touch(code, MIB);
        code = touch(stage_pages(MIB), MIB);
        if (mprotect(code, MIB, PROT_READ | PROT_EXEC) == 0)
            record[CODE] = 2 * MIB;
    }
    touch(zeroed, 6 * MIB);
    record[BSS] = 6 * MIB;
    touch(stage_pages(7 * MIB), 7 * MIB);
    lazy = touch(stage_pages(2 * MIB), 2 * MIB);
#ifdef MADV_FREE
    if (madvise(lazy, 2 * MIB, MADV_FREE) == 0)
        record[LAZY] = 2 * MIB;
#endif
    record[PLAIN] = 9 * MIB;
    huge = mmap(NULL, 2 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
    if (huge != MAP_FAILED) {
        touch(huge, 2 * MIB);
        record[HUGETLB] = 2 * MIB;
    }
}

static void make_malloc(void)
{
    char *volatile block;
    int number;

    for (number = 0; number < 9000; number++) {
        block = malloc(1000);
        memset(block, 3, 1000);
    }
    record[MALLOC] = 9000 * 1000;
    touch(sbrk(3 * MIB), 3 * MIB); /* behind the top of the heap, which stays as it is from here on */
    record[BRK] = 3 * MIB;
}

/* Uses `bytes` of the stack it runs on. */
__attribute__((noinline)) static void deepen(size_t bytes)
{
    char *deep = __builtin_alloca(bytes);

    memset(deep, 7, bytes);
    __asm__ volatile("" : : "r"(deep) : "memory");
}

static void rest_forever(void)
{
    char byte;

    pthread_barrier_wait(&started);
    while (read(lock[0], &byte, 1) != 0)
        ;
}

static void *lives(void *unused)
{
    deepen(256 * KIB);
    rest_forever();
    return unused;
}

static void on_coroutine(void)
{
    deepen(128 * KIB);
    rest_forever();
}

static void *runs_elsewhere(void *stack)
{
    deepen(256 * KIB);
    getcontext(&coroutine_context);
    coroutine_context.uc_stack.ss_sp = stack;
    coroutine_context.uc_stack.ss_size = MIB;
    coroutine_context.uc_link = &thread_context;
    makecontext(&coroutine_context, on_coroutine, 0);
    swapcontext(&thread_context, &coroutine_context);
    return NULL;
}

static void *ends(void *unused)
{
    deepen(64 * KIB);
    return unused;
}

static void make_stacks(void)
{
    size_t page = (size_t) sysconf(_SC_PAGESIZE);
    char *guarded = mmap(NULL, MIB + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); /* with a page on either side */
    pthread_t thread, ending[2];
    pthread_attr_t attr;

    if (guarded == MAP_FAILED || mprotect(guarded + page, MIB, PROT_READ | PROT_WRITE) != 0 || pipe(lock) != 0)
        stage_fail("no coroutine stack");
    pthread_barrier_init(&started, NULL, 4);
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, 3 * MIB); /* a size that only these have */
    if (pthread_create(&ending[0], &attr, ends, NULL) != 0 || pthread_create(&ending[1], &attr, ends, NULL) != 0)
        stage_fail("no thread");
    pthread_join(ending[0], NULL);
    pthread_join(ending[1], NULL);
    pthread_attr_setstacksize(&attr, 8 * MIB); /* larger than what the ended ones left, so that these stay */
    if (pthread_create(&thread, &attr, lives, NULL) != 0 || pthread_create(&thread, &attr, lives, NULL) != 0 ||
        pthread_create(&thread, &attr, runs_elsewhere, guarded + page) != 0)
        stage_fail("no thread");
    pthread_barrier_wait(&started);
    record[STACKS] = 3 * 256 * KIB;
    record[COROUTINE] = 128 * KIB;
    record[ENDED] = 2;
}

int main(int argc, char **argv)
{
    pid_t parent = getpid();

    if (argc != 3)
        stage_fail("usage: owners RECORD FILE");
    record = stage_record(argv[1], FIELDS * sizeof *record);
    make_shared();
    make_file(argv[2]);
    make_private();
    make_malloc();
    make_stacks();
    record[FORKED] = (uint64_t)fork();
    if (record[FORKED] == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        while (getppid() == parent)
            pause();
        _exit(0);
    }
    stage_ready(1);
    for (;;)
        stage_command();
}
