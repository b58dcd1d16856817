/* A malloc that nobody knows: it reserves a gigabyte of addresses once, takes what it needs from its begin, and never gives a block out
   again. A block that was freed is marked in its header; tiny_release() returns the whole pages inside of such blocks. */

#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#define RESERVE ((size_t)1 << 30)
#define FREED ((size_t)1)

static char *begin, *next, *end;

#ifdef TINY_UNUSED /* a copy that nobody calls */
#define malloc unused_malloc
#define free unused_free
#define calloc unused_calloc
#define realloc unused_realloc
#endif

void *malloc(size_t size)
{
    size_t bytes = (size + 31) & ~(size_t)15;
    char *block;

    if (!next) { /* the first call is before any thread */
        begin = next = mmap(NULL, RESERVE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        end = next + RESERVE;
    }
    block = __atomic_fetch_add(&next, bytes, __ATOMIC_SEQ_CST);
    if (block + bytes > end)
        return NULL;
    *(size_t *)block = (size + 15) & ~(size_t)15;
    return block + 16;
}

void free(void *block)
{
    if (block)
        *(size_t *)((char *)block - 16) |= FREED;
}

void *calloc(size_t count, size_t size)
{
    return malloc(count * size); /* fresh pages are zero */
}

void *realloc(void *block, size_t size)
{
    void *made = malloc(size);

    if (block && made) {
        size_t old = *(size_t *)((char *)block - 16) & ~FREED;

        memcpy(made, block, old < size ? old : size);
        free(block);
    }
    return made;
}

int tiny_release(void)
{
    char *block = begin;
    int returned = 0;

    while (block < next) {
        size_t size = *(size_t *)block & ~FREED;
        char *first = (char *)(((uintptr_t)block + 16 + 4095) & ~(uintptr_t)4095);
        char *last = (char *)(((uintptr_t)block + 16 + size) & ~(uintptr_t)4095);

        if (*(size_t *)block & FREED && first < last && !madvise(first, (size_t)(last - first), MADV_DONTNEED))
            returned++;
        block += size + 16;
    }
    return returned;
}
