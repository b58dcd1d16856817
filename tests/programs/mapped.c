/* mapped RECORD

   Blocks of malloc's that have mappings of their own, in a global table, which the program has protected in part, and others beside them.
   The record has one line each: how, the address of the block, its size.

   plain: nothing done. memalign: on a boundary of 64 KiB. stack: as coroutines have them, with a guard page below. middle: a page inside that
   nobody may read. sealed: all of it read-only, the header too. headless: the header's page cannot be read. undumped: a part is left out of
   cores. locked, small-pages, named: the kernel splits the mapping (mlock, MADV_NOHUGEPAGE, prctl).

   Commands: g grows the header of a plain block over the one above it and frees it, which unmaps both; f frees a plain block, and ends. */

#include "stage.h"
#include <stdio.h>

#define PAGE 4096u
#define KINDS 32
#if __GLIBC_PREREQ(2, 43)
#define TRAILER_BYTES 16u
#else
#define TRAILER_BYTES 0u
#endif

static char *blocks[KINDS];
static unsigned count;
static int record;

static void note(const char *how, char *block, size_t size)
{
    char line[96];
    int length = snprintf(line, sizeof line, "%s %p %zu\n", how, (void *)block, size);

    if (!block || count == KINDS || write(record, line, (size_t)length) != length)
        stage_fail("no block");
    block[0] = 1;
    block[size - 1] = 1;
    blocks[count++] = block;
}

static char *aligned(size_t alignment, size_t size)
{
    void *found = NULL;

    if (posix_memalign(&found, alignment, size) != 0)
        stage_fail("no memory");
    return found;
}

static char *page_of(char *address)
{
    return (char *)((uintptr_t)address & ~(uintptr_t)(PAGE - 1));
}

int main(int argc, char **argv)
{
    unsigned i;
    char *block;

    if (argc != 2 || (record = open(argv[1], O_RDWR | O_CREAT | O_TRUNC, 0600)) < 0)
        stage_fail("usage: mapped RECORD");
    for (i = 0; i < 4; i++)
        note("plain", malloc((400 + 100 * i) << 10), (400 + 100 * i) << 10);
    for (i = 0; i < 2; i++)
        note("memalign", aligned(64 << 10, (300 + 100 * i) << 10), (300 + 100 * i) << 10);
    for (i = 0; i < 8; i++) {
        note("stack", block = aligned(PAGE, 256 << 10), 256 << 10);
        mprotect(block, PAGE, PROT_NONE);
    }
    note("middle", block = malloc(600 << 10), 600 << 10);
    mprotect(page_of(block) + 40 * PAGE, PAGE, PROT_NONE);
    note("sealed", block = malloc(700 << 10), 700 << 10);
    mprotect(page_of(block), 176 * PAGE, PROT_READ);
    note("headless", block = malloc(800 << 10), 800 << 10);
    mprotect(page_of(block), PAGE, PROT_NONE);
    note("undumped", block = malloc(900 << 10), 900 << 10);
    madvise(page_of(block) + 64 * PAGE, 64 * PAGE, MADV_DONTDUMP);
    note("locked", block = malloc(500 << 10), 500 << 10);
    if (mlock(page_of(block) + 8 * PAGE, PAGE) != 0)
        stage_fail("cannot lock a page");
    note("small-pages", block = malloc(520 << 10), 520 << 10);
    madvise(page_of(block) + 8 * PAGE, 16 * PAGE, MADV_NOHUGEPAGE);
    note("named", block = malloc(540 << 10), 540 << 10);
    prctl(0x53564d41, 0, page_of(block) + 8 * PAGE, 16 * PAGE, "part"); /* PR_SET_VMA_ANON_NAME: an error before Linux 5.17 */
    stage_ready(1);
    for (;;) {
        char command = stage_command();

        if (command == 'f')
            break;
        if (command == 'g') {
            ((size_t *)(void *)blocks[1])[-1] += (((size_t *)(void *)blocks[0])[-1] & ~(size_t)7) + TRAILER_BYTES;
            free(blocks[1]);
            stage_ready(1);
        }
    }
    free(blocks[1]);
    return 0;
}
