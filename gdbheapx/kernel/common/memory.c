/* Memory of this process for tables that are read at random. */
#define _GNU_SOURCE
#include "heapx.h"

#include <stdlib.h>
#include <sys/mman.h>

#define HUGE_BYTES ((size_t) 2 << 20)

/* Bytes as they are mapped, and more by one huge page so that it can begin on one. */
static size_t mapped_bytes(size_t bytes)
{
    return bytes < HUGE_BYTES ? bytes + 1 : (bytes + HUGE_BYTES - 1) / HUGE_BYTES * HUGE_BYTES + HUGE_BYTES;
}

void *big_alloc(size_t bytes)
{
    const size_t whole = mapped_bytes(bytes);
    if (bytes < HUGE_BYTES)
        return calloc(1, whole);
    uint8_t *at = mmap(NULL, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED)
        return NULL;
    const size_t before = HUGE_BYTES - (size_t) (uintptr_t) at % HUGE_BYTES;
    munmap(at, before);
    if (before < HUGE_BYTES)
        munmap(at + before + whole - HUGE_BYTES, HUGE_BYTES - before);
    madvise(at + before, whole - HUGE_BYTES, MADV_HUGEPAGE);
    return at + before;
}

void big_free(void *memory, size_t bytes)
{
    if (memory && bytes >= HUGE_BYTES)
        munmap(memory, mapped_bytes(bytes) - HUGE_BYTES);
    else
        free(memory);
}

void *lazy_alloc(size_t bytes)
{
    void *at = mmap(NULL, bytes ? bytes : 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return at == MAP_FAILED ? NULL : at;
}

void *dense_alloc(size_t bytes)
{
    void *at = lazy_alloc(bytes);
    if (at && bytes >= HUGE_BYTES)
        madvise(at, bytes, MADV_HUGEPAGE);
    return at;
}

void *dense_grow(void *memory, size_t before, size_t bytes)
{
    if (!memory)
        return dense_alloc(bytes);
    void *at = mremap(memory, before ? before : 1, bytes ? bytes : 1, MREMAP_MAYMOVE);
    if (at == MAP_FAILED)
        return NULL;
    if (bytes >= HUGE_BYTES)
        madvise(at, bytes, MADV_HUGEPAGE);
    return at;
}

void lazy_free(void *memory, size_t bytes)
{
    if (memory)
        munmap(memory, bytes ? bytes : 1);
}
