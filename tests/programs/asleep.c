/* asleep RECORD: a process at rest with much that it never touched, and a child at rest that it forked.

   Never touched: 2 GiB of its own mapping and, right above it, 2 GiB from calloc, of which malloc wrote the header alone; a private and
   a shared mapping of a file of 64 MiB. Touched: 20 MB of small blocks, every other one freed; the child shares them all and writes no
   more than its stack. The record holds the child's pid. Any command byte wakes both, so that what a wake costs after the fork is paid
   before anybody looks; "ready" comes when both sleep again.

   The kernel is told not to make huge pages of the small ones by itself: Rss would change while nobody looks. */

#include "stage.h"
#include <signal.h>
#include <stdio.h>

#define HALF ((size_t)2 << 30)
#define FILE_BYTES ((size_t)64 << 20)
#define BLOCKS 200000

static void untouched_memory(void)
{
    void *volatile block = calloc(1, HALF);
    char *below = (char *)((uintptr_t)block & ~(uintptr_t)4095) - HALF;

    if (!block)
        stage_fail("no address space");
    if (mmap(below, HALF, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) != below)
        stage_pages(HALF); /* another allocator's block, which has no header to look for */
}

static void untouched_file(const char *record)
{
    char path[4096];
    int fd, kind;

    if (snprintf(path, sizeof path, "%s.mapped", record) >= (int)sizeof path)
        stage_fail("the record's path is too long");
    fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (fd < 0 || ftruncate(fd, (off_t)FILE_BYTES) != 0)
        stage_fail("the file cannot be made");
    for (kind = MAP_SHARED; kind <= MAP_PRIVATE; kind++)
        if (mmap(NULL, FILE_BYTES, PROT_READ | PROT_WRITE, kind, fd, 0) == MAP_FAILED)
            stage_fail("the file cannot be mapped");
    close(fd);
}

int main(int argc, char **argv)
{
    int down[2], up[2], i;
    char byte = 'w';
    uint64_t *record;
    pid_t child;

    if (argc != 2)
        stage_fail("usage: asleep RECORD");
    prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
    record = stage_record(argv[1], 8);
    untouched_memory();
    untouched_file(argv[1]);
    for (i = 0; i < BLOCKS; i++) {
        char *volatile block = malloc(100);

        if (!block)
            stage_fail("out of memory");
        memset(block, 1, 100);
        if (i % 2)
            free(block);
    }
    if (pipe(down) != 0 || pipe(up) != 0 || (child = fork()) < 0)
        stage_fail("no child");
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
        while (read(down[0], &byte, 1) == 1 && write(up[1], &byte, 1) == 1)
            ;
        _exit(0);
    }
    *record = (uint64_t)child;
    for (;;) {
        stage_ready(1);
        stage_command();
        if (write(down[1], &byte, 1) != 1 || read(up[0], &byte, 1) != 1)
            stage_fail("the child has ended");
    }
}
