/* Where bytes come from: segments of a file, a Python call, or bytes in this process.

   A live process is the file /proc/PID/mem with one segment. process_vm_readv would be a little faster, but it pins what it reads, and the kernel
   answers a pin of a page that is shared after fork with a copy: reading would take memory from the process. */
#define _GNU_SOURCE
#include "heapx.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

enum { SOURCE_FILE, SOURCE_CALL, SOURCE_BYTES };

typedef int64_t (*read_call)(uint64_t address, void *to, uint64_t size);

struct segment {
    uint64_t address, size;
    uint64_t place;     /* offset in the file, or the address of the bytes in this process */
};

struct source {
    int kind;
    int fd;
    read_call call;
    size_t segment_count;
    struct segment segments[];
};

EXPORT uint32_t heapx_abi(void)
{
    return HEAPX_ABI;
}

#ifndef HEAPX_SOURCE_ID
#define HEAPX_SOURCE_ID 0
#endif

/* A checksum of the C files this library was built from: library.py refuses a library older than the files beside it. */
EXPORT uint32_t heapx_source_id(void)
{
    return HEAPX_SOURCE_ID;
}

double clock_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double) now.tv_sec + (double) now.tv_nsec * 1e-9;
}

/* `segments`: address, size, place for each, sorted by address without overlap. */
EXPORT struct source *heapx_source_new(int kind, int fd, read_call call, const uint64_t *segments, uint64_t count)
{
    struct source *source = malloc(sizeof *source + (size_t) count * sizeof(struct segment));
    if (!source)
        return NULL;
    source->kind = kind;
    source->fd = fd;
    source->call = call;
    source->segment_count = (size_t) count;
    if (count)
        memcpy(source->segments, segments, (size_t) count * sizeof(struct segment));
    return source;
}

EXPORT void heapx_source_free(struct source *source)
{
    free(source);
}

int source_is_parallel(const struct source *source)
{
    return source->kind != SOURCE_CALL;
}

static uint64_t read_at(int fd, uint8_t *to, uint64_t size, uint64_t offset)
{
    uint64_t done = 0;
    while (done < size) {
        ssize_t got = pread(fd, to + done, (size_t) (size - done), (off_t) (offset + done));
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            break;
        done += (uint64_t) got;
    }
    return done;
}

static uint64_t read_segments(const struct source *source, uint64_t address, uint8_t *to, uint64_t size)
{
    size_t low = 0, high = source->segment_count;
    while (low < high) {    /* first segment that ends beyond `address` */
        size_t middle = low + (high - low) / 2;
        if (address - source->segments[middle].address >= source->segments[middle].size
            && address >= source->segments[middle].address)
            low = middle + 1;
        else
            high = middle;
    }
    uint64_t done = 0;
    for (; low < source->segment_count && done < size; low++) {
        const struct segment *segment = &source->segments[low];
        uint64_t skip = address + done - segment->address;
        if (address + done < segment->address || skip >= segment->size)
            break;
        uint64_t want = segment->size - skip < size - done ? segment->size - skip : size - done;
        uint64_t got = want;
        if (source->kind == SOURCE_BYTES)
            memcpy(to + done, (const uint8_t *) (uintptr_t) segment->place + skip, (size_t) want);
        else
            got = read_at(source->fd, to + done, want, segment->place + skip);
        done += got;
        if (got < want)
            break;
    }
    return done;
}

int64_t source_read(const struct source *source, uint64_t address, void *to, uint64_t size)
{
    if (size > UINT64_MAX - address)
        size = UINT64_MAX - address;
    if (source->kind == SOURCE_CALL) {
        int64_t got = source->call(address, to, size);
        return got > (int64_t) size ? (int64_t) size : got;
    }
    return (int64_t) read_segments(source, address, to, size);
}

int source_gather(const struct source *source, const uint64_t *addresses, unsigned count, unsigned size, uint8_t *to, uint8_t *got)
{
    for (unsigned i = 0; i < count; i++) {
        int64_t length = source_read(source, addresses[i], to + (size_t) i * size, size);
        if (length < 0)
            return READ_INTERRUPTED;
        got[i] = (uint64_t) length == size;
    }
    return 0;
}
