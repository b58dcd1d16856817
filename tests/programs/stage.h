/* What every test program shares: a record that a test reads, "ready" on standard output, commands on standard input.

   Nothing here touches the heap: records lie in a MAP_SHARED file, messages go through write(2). A program that loses its
   test (end of file on standard input) ends by itself. */

#ifndef STAGE_H
#define STAGE_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

/* mallinfo2 came with glibc 2.33; before it, mallinfo has the same fields as int, and no heap here is that large. */
#if defined __GLIBC__
#if !__GLIBC_PREREQ(2, 33)
#define mallinfo2 mallinfo
#endif
#endif

/* Ends the program with a reason on standard error. */
static void stage_fail(const char *why)
{
    ssize_t ignored = write(2, why, strlen(why));
    ignored = write(2, "\n", 1);
    (void)ignored;
    _exit(70);
}

/* A shared file of `bytes` zero bytes at `path`. */
static inline void *stage_record(const char *path, size_t bytes)
{
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    void *record;

    if (fd < 0 || ftruncate(fd, (off_t)bytes) != 0)
        stage_fail("the record file cannot be made");
    record = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (record == MAP_FAILED)
        stage_fail("the record file cannot be mapped");
    close(fd);
    return record;
}

/* Private memory for a program's own tables, outside every heap. */
static inline void *stage_pages(size_t bytes)
{
    void *pages = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (pages == MAP_FAILED)
        stage_fail("no memory for the program's own tables");
    return pages;
}

/* Tells the test, on `fd`, that the state is reached; from now on a debugger that is no parent may attach (yama). */
static inline void stage_ready(int fd)
{
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
    if (write(fd, "ready\n", 6) != 6)
        _exit(71);
}

/* Waits for the next command byte. */
static int stage_command(void)
{
    char command;

    if (read(0, &command, 1) != 1)
        _exit(0);
    return command;
}

/* Touches the stack below the caller, so that a call made later from here needs no new page of it. */
__attribute__((noinline, unused)) static void stage_deepen(void)
{
    char deep[65536];

    memset(deep, 0, sizeof deep);
    __asm__ volatile("" : : "r"(deep) : "memory");
}

/* No vector register keeps a pointer that some function has left there: what is not saved across calls may be cleared. */
__attribute__((noinline, unused)) static void stage_forget_vectors(void)
{
#if defined __x86_64__
    if (__builtin_cpu_supports("avx512f"))
        __asm__ volatile("vpxorq %%zmm16, %%zmm16, %%zmm16\n vmovdqa64 %%zmm16, %%zmm17\n vmovdqa64 %%zmm16, %%zmm18\n"
                         "vmovdqa64 %%zmm16, %%zmm19\n vmovdqa64 %%zmm16, %%zmm20\n vmovdqa64 %%zmm16, %%zmm21\n"
                         "vmovdqa64 %%zmm16, %%zmm22\n vmovdqa64 %%zmm16, %%zmm23\n vmovdqa64 %%zmm16, %%zmm24\n"
                         "vmovdqa64 %%zmm16, %%zmm25\n vmovdqa64 %%zmm16, %%zmm26\n vmovdqa64 %%zmm16, %%zmm27\n"
                         "vmovdqa64 %%zmm16, %%zmm28\n vmovdqa64 %%zmm16, %%zmm29\n vmovdqa64 %%zmm16, %%zmm30\n"
                         "vmovdqa64 %%zmm16, %%zmm31" : : : "memory");
    if (__builtin_cpu_supports("avx"))
        __asm__ volatile("vzeroall" : : : "memory");
#elif defined __aarch64__
    __asm__ volatile("movi v0.2d, #0\n movi v1.2d, #0\n movi v2.2d, #0\n movi v3.2d, #0\n movi v4.2d, #0\n movi v5.2d, #0\n"
                     "movi v6.2d, #0\n movi v7.2d, #0\n movi v16.2d, #0\n movi v17.2d, #0\n movi v18.2d, #0\n movi v19.2d, #0\n"
                     "movi v20.2d, #0\n movi v21.2d, #0\n movi v22.2d, #0\n movi v23.2d, #0\n movi v24.2d, #0\n movi v25.2d, #0\n"
                     "movi v26.2d, #0\n movi v27.2d, #0\n movi v28.2d, #0\n movi v29.2d, #0\n movi v30.2d, #0\n movi v31.2d, #0"
                     : : : "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v16", "v17", "v18", "v19", "v20", "v21", "v22", "v23",
                       "v24", "v25", "v26", "v27", "v28", "v29", "v30", "v31", "memory");
#endif
}

/* xorshift64*: the same numbers on every machine. */
static inline uint64_t stage_random(uint64_t *state)
{
    uint64_t x = *state;

    x ^= x >> 12;
    x ^= x << 25;
    x ^= x >> 27;
    *state = x;
    return x * 0x2545F4914F6CDD1DULL;
}

/* A request as programs make them: mostly small, now and then large. Up to 100,000 bytes, so never mmapped by default. */
static inline size_t stage_request(uint64_t *state)
{
    uint64_t kind = stage_random(state) % 1000;
    uint64_t r = stage_random(state);

    if (kind < 600)
        return 1 + r % 120;
    if (kind < 820)
        return 121 + r % 912;
    if (kind < 940)
        return 1033 + r % 3072;
    if (kind < 990)
        return 4097 + r % 28672;
    return 32769 + r % 67232;
}

/* Makes malloc merge its fastbin chunks and sort what is unsorted into bins; the compiler must not see that nothing is kept. */
static inline void stage_sort(void)
{
    void *volatile large = malloc(100000);

    free(large);
}

#endif
