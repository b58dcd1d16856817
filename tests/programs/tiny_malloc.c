/* A malloc that nobody knows: it never gives a block out again. */

#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

static char *next, *end;

void *malloc(size_t size)
{
    size_t bytes = (size + 31) & ~(size_t)15;
    char *block = __atomic_fetch_add(&next, bytes, __ATOMIC_SEQ_CST);

    if (!block || block + bytes > end) { /* good enough for programs of a few threads */
        size_t room = bytes > 1 << 24 ? bytes : 1 << 24;

        block = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (block == MAP_FAILED)
            return NULL;
        end = block + room;
        next = block + bytes;
    }
    *(size_t *)block = size;
    return block + 16;
}

void free(void *block)
{
    (void)block;
}

void *calloc(size_t count, size_t size)
{
    return malloc(count * size); /* fresh pages are zero */
}

void *realloc(void *block, size_t size)
{
    void *made = malloc(size);

    if (block && made) {
        size_t old = *(size_t *)((char *)block - 16);

        memcpy(made, block, old < size ? old : size);
    }
    return made;
}
