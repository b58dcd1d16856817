/* Which code allocated each block that a process has now: preloaded, `SITES_RECORD=FOLDER LD_PRELOAD=./sites.so PROGRAM`.

   FOLDER/PID is a table of `struct entry` outside every heap, mapped and shared: it can be read at any time, 0 and 1 as an address are
   empty. Addresses of blocks are turned round, bit by bit: else the table is one more that points to each block. A child has no record
   until it becomes another program. Blocks from before this library was asked first are not in it. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <execinfo.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define FRAMES 14
#define OWN 3 /* frames of this file at most */
#define ENTRIES (1u << 21)
#define EMPTY 0
#define GONE 1

struct entry {
    uint64_t turned, size, frames[FRAMES]; /* ~address; return addresses, the innermost first; 0 behind the last */
};

static void *(*next_malloc)(size_t), *(*next_calloc)(size_t, size_t), *(*next_realloc)(void *, size_t);
static void *(*next_memalign)(size_t, size_t), *(*next_aligned)(size_t, size_t);
static int (*next_posix)(void **, size_t, size_t);
static void (*next_free)(void *);
static struct entry *entries;
static atomic_flag busy = ATOMIC_FLAG_INIT;
static __thread int inside __attribute__((tls_model("initial-exec")));

static void resolve(void)
{
    if (next_free)
        return;
    next_malloc = dlsym(RTLD_NEXT, "malloc");
    next_calloc = dlsym(RTLD_NEXT, "calloc");
    next_realloc = dlsym(RTLD_NEXT, "realloc");
    next_memalign = dlsym(RTLD_NEXT, "memalign");
    next_aligned = dlsym(RTLD_NEXT, "aligned_alloc");
    next_posix = dlsym(RTLD_NEXT, "posix_memalign");
    next_free = dlsym(RTLD_NEXT, "free");
}

static void forked(void)
{
    entries = NULL;
}

__attribute__((constructor)) static void begin(void)
{
    const char *folder = getenv("SITES_RECORD");
    char name[4096];
    void *some[4];
    int file;

    resolve();
    if (!folder)
        return;
    inside = 1;
    backtrace(some, 4); /* loads the unwinder now */
    pthread_atfork(NULL, NULL, forked);
    snprintf(name, sizeof name, "%s/%d", folder, (int)getpid());
    file = open(name, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (file >= 0 && ftruncate(file, (off_t)ENTRIES * sizeof *entries) == 0) {
        void *mapped = mmap(NULL, (size_t)ENTRIES * sizeof *entries, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);

        entries = mapped == MAP_FAILED ? NULL : mapped;
    }
    if (file >= 0)
        close(file);
    inside = 0;
}

static uint32_t bucket_of(uint64_t address)
{
    return (uint32_t)((address >> 4) * 0x9e3779b97f4a7c15u >> 43) & (ENTRIES - 1);
}

static void lock(void)
{
    while (atomic_flag_test_and_set_explicit(&busy, memory_order_acquire))
        ;
}

static void drop(void *block)
{
    uint32_t at = bucket_of((uintptr_t)block), tries;

    if (!block || !entries)
        return;
    lock();
    for (tries = 0; tries < ENTRIES && entries[at].turned != EMPTY; tries++, at = (at + 1) & (ENTRIES - 1))
        if (entries[at].turned == ~(uint64_t)(uintptr_t)block) {
            entries[at].turned = GONE;
            break;
        }
    atomic_flag_clear_explicit(&busy, memory_order_release);
}

__attribute__((noinline)) static void keep(void *block, size_t size)
{
    void *frames[FRAMES + OWN] = {0};
    uint32_t at = bucket_of((uintptr_t)block), tries;
    int i, own;

    if (!block || !entries || inside)
        return;
    inside = 1;
    backtrace(frames, FRAMES + OWN);
    for (own = 0; own < OWN; own++) {
        Dl_info in;

        if (frames[own] && dladdr(frames[own], &in) && in.dli_fbase) {
            static void *base;

            if (!base) {
                Dl_info self;

                base = dladdr((void *)keep, &self) ? self.dli_fbase : NULL;
            }
            if (in.dli_fbase != base)
                break;
        }
    }
    lock();
    for (tries = 0; tries < ENTRIES && entries[at].turned > GONE; tries++)
        at = (at + 1) & (ENTRIES - 1);
    if (entries[at].turned <= GONE) {
        entries[at].size = size;
        for (i = 0; i < FRAMES; i++)
            entries[at].frames[i] = (uintptr_t)frames[own + i];
        entries[at].turned = ~(uint64_t)(uintptr_t)block;
    }
    atomic_flag_clear_explicit(&busy, memory_order_release);
    inside = 0;
}

void *log_malloc(size_t size)
{
    void *block;

    resolve();
    block = next_malloc(size);
    keep(block, size);
    return block;
}

void *log_calloc(size_t count, size_t size)
{
    void *block;

    resolve();
    block = next_calloc(count, size);
    keep(block, count * size);
    return block;
}

void *log_realloc(void *old, size_t size)
{
    void *block;

    resolve();
    drop(old); /* before another thread can get it */
    block = next_realloc(old, size);
    keep(block ? block : size ? old : NULL, size);
    return block;
}

void *log_memalign(size_t alignment, size_t size)
{
    void *block;

    resolve();
    block = next_memalign(alignment, size);
    keep(block, size);
    return block;
}

void *log_aligned_alloc(size_t alignment, size_t size)
{
    void *block;

    resolve();
    block = next_aligned(alignment, size);
    keep(block, size);
    return block;
}

int log_posix_memalign(void **made, size_t alignment, size_t size)
{
    int failed;

    resolve();
    failed = next_posix(made, alignment, size);
    if (!failed)
        keep(*made, size);
    return failed;
}

void log_free(void *block)
{
    resolve();
    drop(block);
    next_free(block);
}

/* What the program calls in place of its allocator. */
void *malloc(size_t size) __attribute__((alias("log_malloc")));
void *calloc(size_t count, size_t size) __attribute__((alias("log_calloc")));
void *realloc(void *old, size_t size) __attribute__((alias("log_realloc")));
void *memalign(size_t alignment, size_t size) __attribute__((alias("log_memalign")));
void *aligned_alloc(size_t alignment, size_t size) __attribute__((alias("log_aligned_alloc")));
int posix_memalign(void **made, size_t alignment, size_t size) __attribute__((alias("log_posix_memalign")));
void free(void *block) __attribute__((alias("log_free")));
