/* heap_end RECORD MIB HUGE: a thread fills its arena's heap and frees all of it, so that malloc gives the heap's end back; then
   MIB MiB behind that end are in RAM again, on huge pages if HUGE is 1, as the kernel does it with pages near those in use.

   The record holds the bytes that are in RAM behind the end. */

#include "stage.h"

#include <pthread.h>

#define HUGE_PAGE ((uintptr_t)2 << 20)
#define BYTES 4096

static uint64_t *record, pages;
static int huge;

static void *fill(void *unused)
{
    uint64_t number, blocks = (pages + 3) * HUGE_PAGE / BYTES;
    void **all = stage_pages(blocks * sizeof *all);
    char *first;

    for (number = 0; number < blocks; number++)
        memset(all[number] = malloc(BYTES), 1, BYTES);
    first = (char *)(((uintptr_t)all[0] + 2 * HUGE_PAGE) & -HUGE_PAGE);
    for (number = 0; number < blocks; number++)
        free(all[number]);
    if (madvise(first, pages * HUGE_PAGE, MADV_DONTNEED) != 0 || madvise(first, pages * HUGE_PAGE, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE) != 0)
        stage_fail("no advice");
    for (number = 0; number < pages * HUGE_PAGE; number += 4096)
        ((volatile char *)first)[number] = 1;
    record[0] = pages * HUGE_PAGE;
    stage_ready(1);
    for (;;)
        stage_command();
    return unused;
}

int main(int argc, char **argv)
{
    pthread_t thread;

    if (argc != 4)
        stage_fail("usage: heap_end RECORD MIB HUGE");
    record = stage_record(argv[1], sizeof *record);
    pages = strtoull(argv[2], NULL, 10) * (1 << 20) / HUGE_PAGE;
    huge = atoi(argv[3]);
    if (pthread_create(&thread, NULL, fill, NULL) != 0)
        stage_fail("no thread");
    pthread_join(thread, NULL);
    return 0;
}
