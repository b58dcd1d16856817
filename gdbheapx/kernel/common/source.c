/* Where bytes come from: segments of a file, a Python call, or bytes in this process.

   A live process is the file /proc/PID/mem with one segment. process_vm_readv would be a little faster, but it pins what it reads. The
   kernel answers a pin of a page that was ever shared by fork with a fault in the process, and with a copy while it is shared (mm/gup.c:
   gup_must_unshare): reading would take memory from the process. So would reading a page that it has never touched: /proc/PID/pagemap is
   asked first, and such pages of private anonymous memory are zeros here without a read. Any other page that is not there is not read at
   all: a server of its file (FUSE, NFS) or a userfaultfd would have to answer, and nothing ends such a wait. */
#define _GNU_SOURCE
#include "source.h"
#include "copied.h"
#include "pagemap.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

enum { SOURCE_FILE, SOURCE_CALL, SOURCE_BYTES };

#define NOWHERE UINT64_MAX      /* it has zeros */

struct segment {
    uint64_t address, size;
    uint64_t place;     /* offset in the file, or the address of the bytes in this process, or NOWHERE */
};

struct spans {                  /* begin and end of each range, sorted; the caller's */
    const uint64_t *bounds;
    uint64_t count;
};

struct source {
    int kind;
    int fd;
    int pagemap_fd;             /* of a live process; -1: every page is read */
    int scans;                  /* PAGEMAP_SCAN may be asked of it */
    uint64_t page;              /* this machine's */
    struct spans untouched_zero;    /* private anonymous memory */
    struct spans brought_in;        /* memory without a server, whose missing pages are read all the same */
    struct spans unanswered;        /* mapped files on file systems that may never answer: only private copies of their pages are read */
    const double *until;        /* a live process stands still until then; NULL: for ever. The caller's */
    uint64_t *swapped_in;       /* bytes that were in swap when they were read */
    uint64_t *swap_room;        /* bytes that may still be brought in from swap, and bytes that were refused; NULL: all may */
    const struct copy *copy;    /* what was kept of the process; what it has not is read as it is now */
    const uint8_t *map;         /* the whole file; NULL: not mapped */
    uint64_t map_bytes;
    read_call call;
    size_t segment_count;
    struct segment segments[];
};

uint32_t heapx_abi(void)
{
    return HEAPX_ABI;
}

#ifndef HEAPX_SOURCE_ID
#define HEAPX_SOURCE_ID 0
#endif

/* A checksum of the C files this library was built from: library.py refuses a library older than the files beside it. */
uint32_t heapx_source_id(void)
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
struct source *heapx_source_new(int kind, int fd, read_call call, const uint64_t *segments, uint64_t count)
{
    struct source *source = malloc(sizeof *source + (size_t) count * sizeof(struct segment));
    if (!source)
        return NULL;
    memset(source, 0, sizeof *source);
    source->kind = kind;
    source->fd = fd;
    source->pagemap_fd = -1;
    source->page = (uint64_t) sysconf(_SC_PAGESIZE);
    source->call = call;
    source->segment_count = (size_t) count;
    if (count)
        memcpy(source->segments, segments, (size_t) count * sizeof(struct segment));
    return source;
}

/* The source is a process. What is read later than *until, by the monotonic clock, is of one that runs again: the read counts as
   interrupted. `copy`: of a process that runs again. Either may be NULL.
   Pages that its pagemap calls neither present nor swapped are not read: within `zero` they are zeros, and in `brought_in`, as shared
   memory in swap, they are read all the same. In `unanswered` no page is read that is the file's. Begin and end of each range, sorted, the
   caller's. `swapped_in` counts the bytes that reads have brought back from swap; pages in swap for which `swap_room` has nothing left are
   not read. */
void heapx_source_process(struct source *source, const double *until, const struct copy *copy, int pagemap_fd, int scans,
                          uint64_t *swapped_in, uint64_t *swap_room, const uint64_t *zero, uint64_t zero_count, const uint64_t *brought_in,
                          uint64_t brought_count, const uint64_t *unanswered, uint64_t unanswered_count)
{
    source->until = until;
    source->copy = copy;
    source->pagemap_fd = pagemap_fd;
    source->scans = scans;
    source->swapped_in = swapped_in;
    source->swap_room = swap_room;
    source->untouched_zero = (struct spans) {zero, zero_count};
    source->brought_in = (struct spans) {brought_in, brought_count};
    source->unanswered = (struct spans) {unanswered, unanswered_count};
}

void heapx_source_free(struct source *source)
{
    if (source && source->map)
        munmap((void *) (uintptr_t) source->map, (size_t) source->map_bytes);
    free(source);
}

int source_is_parallel(const struct source *source)
{
    return source->kind != SOURCE_CALL;
}

uint64_t read_at(int fd, uint8_t *to, uint64_t size, uint64_t offset)
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

#define PAGES_AT_ONCE 66u   /* of one block of 256 KiB that begins anywhere in a page */
#define ENTRY_TOUCHED (ENTRY_PRESENT | ENTRY_SWAPPED)

/* What was never touched is known to be zeros somewhere. */
static int is_process(const struct source *source)
{
    return source->pagemap_fd >= 0 || source->copy;
}

/* End of the range that holds `address`; 0 if none does. `*next`: where the first begins that lies beyond it. */
static uint64_t span_until(const struct spans *spans, uint64_t address, uint64_t *next)
{
    const uint64_t low = rows_up_to(spans->bounds, spans->count, 2 * sizeof *spans->bounds, address);
    if (next)
        *next = low < spans->count ? spans->bounds[2 * low] : UINT64_MAX;
    return low && address < spans->bounds[2 * low - 1] ? spans->bounds[2 * low - 1] : 0;
}

static uint64_t zeros_until(const struct source *source, uint64_t address)
{
    return span_until(&source->untouched_zero, address, NULL);
}

uint64_t source_ahead(const struct source *source, uint64_t address, uint64_t size, uint64_t most)
{
    if (!is_process(source))
        return most;
    const uint64_t end = zeros_until(source, address);
    if (end <= address || end - address < size)
        return size;
    return end - address < most ? end - address : most;
}

enum { PAGES_PLAIN, PAGES_OF_FILE, PAGES_UNTOUCHED, PAGES_SWAPPED };

static int kind_of_page(uint64_t entry, uint64_t bits)
{
    if (!(entry & bits) || entry_is_mark(entry))
        return PAGES_UNTOUCHED;
    if (!(entry & (ENTRY_PRESENT | ENTRY_GUARD)))
        return PAGES_SWAPPED;
    return entry & ENTRY_FILE ? PAGES_OF_FILE : PAGES_PLAIN;
}

/* How many of `want` bytes at `address`, which are no zeros, may be read by /proc/PID/mem; 0: none. */
static uint64_t readable(const struct source *source, uint64_t address, uint64_t want, int kind)
{
    uint64_t until = address + want, next = UINT64_MAX;
    if (kind == PAGES_UNTOUCHED) {
        until = span_until(&source->brought_in, address, NULL);
    } else if (kind == PAGES_OF_FILE && source->unanswered.count) {
        until = span_until(&source->unanswered, address, &next) ? 0 : next;
    }
    return until <= address ? 0 : until - address < want ? until - address : want;
}

/* Entries from the first on, at most `count`, that are all of one kind: how many, and which. */
static uint64_t pages_alike(const uint64_t *entries, uint64_t count, uint64_t bits, int *kind)
{
    uint64_t same = 1;
    *kind = kind_of_page(entries[0], bits);
    while (same < count && kind_of_page(entries[same], bits) == *kind)
        same++;
    return same;
}

uint64_t source_bring_in(const struct source *source, uint64_t pages)
{
    uint64_t given = pages;
    if (source->swap_room) {
        uint64_t left = __atomic_load_n(&source->swap_room[0], __ATOMIC_RELAXED);
        do {
            given = left / source->page < pages ? left / source->page : pages;
        } while (given && !__atomic_compare_exchange_n(&source->swap_room[0], &left, left - given * source->page, 0, __ATOMIC_RELAXED,
                                                       __ATOMIC_RELAXED));
        if (given < pages)
            __atomic_fetch_add(&source->swap_room[1], (pages - given) * source->page, __ATOMIC_RELAXED);
    }
    if (given)
        __atomic_fetch_add(source->swapped_in, given * source->page, __ATOMIC_RELAXED);
    return given;
}

#define HELD_REGIONS 32u

/* Entries that tell what is in memory and nothing else, by PAGEMAP_SCAN, which looks at the page table alone: pagemap looks at the record
   of each page as well, and waits for its memory. 0: this kernel cannot be asked (before 6.7), or there is more to tell, as of what is
   in swap. */
static int scan_entries(const struct source *source, struct page_entries *held)
{
    struct scan_region regions[HELD_REGIONS];
    const uint64_t begin = held->first * source->page;
    struct scan_arg arg = {.start = begin, .end = begin + HELD_PAGES * source->page};
    arg.category_anyof_mask = CATEGORY_PRESENT | CATEGORY_SWAPPED;
    arg.return_mask = arg.category_anyof_mask | CATEGORY_FILE;
    const int got = source->scans ? scan_pages(source->pagemap_fd, &arg, regions, HELD_REGIONS) : -1;
    if (got < 0 || got == (int) HELD_REGIONS || arg.walk_end != arg.end)
        return 0;
    memset(held->entries, 0, sizeof held->entries);
    for (int i = 0; i < got; i++) {
        if (regions[i].categories & CATEGORY_SWAPPED)
            return 0;
        for (uint64_t at = regions[i].start; at < regions[i].end; at += source->page)
            held->entries[(at - begin) / source->page] = ENTRY_PRESENT | (regions[i].categories & CATEGORY_FILE ? ENTRY_FILE : 0);
    }
    held->count = HELD_PAGES;
    return 1;
}

/* The entries of some of `count` pages from the first on; of how many, 0: none can be read. Where reads follow each other closely and the
   process stands still, those around are kept: each of many headers costs one read instead of two. */
static uint64_t entries_of(const struct source *source, struct page_entries *held, uint64_t first, uint64_t count, uint64_t *entries)
{
    const uint64_t begin = first - first % HELD_PAGES;
    if (!held || !source->until || !isfinite(*source->until))      /* it runs (NEVER), or nothing tells */
        return read_at(source->pagemap_fd, (uint8_t *) entries, count * 8, first * 8) / 8;
    if (held->until != *source->until)      /* of another stop */
        held->count = 0;
    held->until = *source->until;
    if (first - held->first >= held->count) {
        const int is_near = begin - held->missed + HELD_PAGES <= 2 * HELD_PAGES;
        held->missed = begin;
        if (!is_near)
            return read_at(source->pagemap_fd, (uint8_t *) entries, count * 8, first * 8) / 8;
        held->first = begin;
        held->count = 0;
        if (!scan_entries(source, held))
            held->count = read_at(source->pagemap_fd, (uint8_t *) held->entries, sizeof held->entries, begin * 8) / 8;
    }
    const uint64_t skip = first - held->first, known = skip < held->count ? held->count - skip : 0;
    count = known < count ? known : count;
    memcpy(entries, held->entries + skip, count * 8);
    return count;
}

/* As read_at, but for pages of private anonymous memory that have none of the bits: ENTRY_TOUCHED, or ENTRY_PRESENT alone. It ends at a
   page in swap that may not be brought in, and at one that is not there or whose file system may never answer. */
static uint64_t read_living(const struct source *source, uint64_t address, uint8_t *to, uint64_t size, uint64_t bits,
                            struct page_entries *held)
{
    uint64_t entries[PAGES_AT_ONCE], done = 0;
    while (done < size) {
        const uint64_t at = address + done, first = at / source->page;
        uint64_t count = (at + (size - done) - 1) / source->page - first + 1;
        if (count > PAGES_AT_ONCE)
            count = PAGES_AT_ONCE;
        uint64_t known = entries_of(source, held, first, count, entries);
        if (!known)     /* beyond all memory, or the process has ended: the read tells */
            return done + read_at(source->fd, to + done, size - done, at);
        for (uint64_t place = 0; place < known && done < size;) {
            int kind;
            uint64_t here = address + done, pages = pages_alike(entries + place, known - place, bits, &kind);
            const uint64_t zeros = kind == PAGES_UNTOUCHED ? zeros_until(source, here) : 0;
            if (kind == PAGES_UNTOUCHED && !zeros && !(bits & ENTRY_SWAPPED))    /* a peek, where what is in swap is no zero */
                pages = pages_alike(entries + place, pages, ENTRY_TOUCHED, &kind);
            if (kind == PAGES_SWAPPED) {
                pages = source_bring_in(source, pages);
                if (!pages)
                    return done;
                if (held)       /* they are in memory from now on */
                    held->count = 0;
            }
            uint64_t want = (first + place + pages) * source->page - here;
            if (want > size - done)
                want = size - done;
            if (zeros && want > zeros - here)
                want = zeros - here;
            uint64_t got = zeros ? want : readable(source, here, want, kind);
            if (!got)
                return done;
            want = got;
            if (zeros)
                memset(to + done, 0, (size_t) want);
            else
                got = read_at(source->fd, to + done, want, here);
            done += got;
            if (got < want)
                return done;
            place = (address + done) / source->page - first;
        }
    }
    return done;
}

/* The same of a process of which a copy may be there. */
static uint64_t read_process(const struct source *source, uint64_t address, uint8_t *to, uint64_t size, uint64_t bits,
                             struct page_entries *entries)
{
    uint64_t done = 0;
    if (!source->copy)
        return read_living(source, address, to, size, bits, entries);
    while (done < size) {
        const uint8_t *held = NULL;
        uint64_t want = size - done, got;
        const int what = copy_run(source->copy, address + done, &want, &held, (bits & ENTRY_SWAPPED) != 0);
        const uint64_t zeros = what == COPIED_NOT ? zeros_until(source, address + done) : 0;
        if (what == COPIED_UNREAD)
            break;
        if (zeros && want > zeros - (address + done))
            want = zeros - (address + done);
        got = want;
        if (what == COPIED_HERE)
            memcpy(to + done, held, (size_t) want);
        else if (zeros)
            memset(to + done, 0, (size_t) want);
        else
            got = read_living(source, address + done, to + done, want, bits, entries);
        done += got;
        if (got < want)
            break;
    }
    return done;
}

/* The first segment that ends beyond `address`. */
static size_t segment_of(const struct source *source, uint64_t address)
{
    const size_t low = (size_t) rows_up_to(source->segments, source->segment_count, sizeof *source->segments, address);
    return low && address - source->segments[low - 1].address < source->segments[low - 1].size ? low - 1 : low;
}

#define ENTRIES_AT_ONCE 2048u
#define SCANNED_AT_ONCE (1u << 18)  /* pages */

/* The first page from `address` on, below `end`, that is in memory or in swap, and the end of the pages behind it that are so, too. 0: this
   kernel cannot be asked (before 6.7). What is known to be the kernel's one page of zeros is passed as well. */
static int scan_touched(const struct source *source, uint64_t address, uint64_t end, struct blanks *blanks)
{
    struct scan_region region;
    struct scan_arg arg = {.start = address & ~(source->page - 1), .end = end, .max_pages = SCANNED_AT_ONCE};
    if (source->copy && copy_touched(source->copy, address, end, blanks))
        return 1;
    arg.category_inverted = arg.category_mask = CATEGORY_ZERO_PAGE;
    arg.category_anyof_mask = CATEGORY_PRESENT | CATEGORY_SWAPPED;
    const int got = source->scans ? scan_pages(source->pagemap_fd, &arg, &region, 1) : -1;
    if (got < 0)
        return 0;
    blanks->from = got ? region.start : arg.walk_end;
    blanks->until = got ? region.end : arg.walk_end;
    return 1;
}

/* The same by an entry for each page; up to the time when the process runs on. */
static void find_touched(const struct source *source, uint64_t address, uint64_t end, struct blanks *blanks)
{
    uint64_t entries[ENTRIES_AT_ONCE], number = address / source->page, count, place;
    const uint64_t last = (end + source->page - 1) / source->page;
    for (;; number += count) {
        count = last - number < ENTRIES_AT_ONCE ? last - number : ENTRIES_AT_ONCE;
        count = read_at(source->pagemap_fd, (uint8_t *) entries, count * 8, number * 8) / 8;
        for (place = 0; place < count && !(entries[place] & ENTRY_TOUCHED);)
            place++;
        if (place < count || !count || number + count >= last || (source->until && clock_now() > *source->until))
            break;
    }
    blanks->from = (number + place) * source->page;
    while (place < count && entries[place] & ENTRY_TOUCHED)
        place++;
    blanks->until = (number + place) * source->page;
}

uint64_t source_skip(const struct source *source, struct blanks *blanks, uint64_t address, uint64_t end)
{
    if (end - address < BLANK_WORTH || (address >= blanks->from && address < blanks->until))
        return address;
    uint64_t zeros = 0;
    if (is_process(source)) {
        zeros = zeros_until(source, address);
    } else if (source->kind == SOURCE_FILE) {
        const size_t found = segment_of(source, address);
        const struct segment *segment = source->segments + found;
        if (found < source->segment_count && segment->address <= address && segment->place == NOWHERE)
            zeros = segment->address + segment->size;
    }
    zeros = zeros < end ? zeros : end;
    if (zeros <= address || zeros - address < BLANK_WORTH)
        return address;
    if (!is_process(source))
        return zeros;
    if (!scan_touched(source, address, zeros, blanks))
        find_touched(source, address, zeros, blanks);
    if (blanks->from < address + BLANK_WORTH) {     /* it is not asked again for each page of a range with many short gaps */
        blanks->from = address;
        blanks->until = blanks->until > address + BLANK_WORTH ? blanks->until : address + BLANK_WORTH;
        return address;
    }
    return blanks->from < zeros ? blanks->from : zeros;
}

static uint64_t read_segments(const struct source *source, uint64_t address, uint8_t *to, uint64_t size, uint64_t bits,
                              struct page_entries *held)
{
    size_t low = segment_of(source, address);
    uint64_t done = 0;
    for (; low < source->segment_count && done < size; low++) {
        const struct segment *segment = &source->segments[low];
        uint64_t skip = address + done - segment->address;
        if (address + done < segment->address || skip >= segment->size)
            break;
        uint64_t want = segment->size - skip < size - done ? segment->size - skip : size - done;
        uint64_t got = want;
        if (segment->place == NOWHERE)
            memset(to + done, 0, (size_t) want);
        else if (source->kind == SOURCE_BYTES)
            memcpy(to + done, (const uint8_t *) (uintptr_t) segment->place + skip, (size_t) want);
        else if (is_process(source))
            got = read_process(source, address + done, to + done, want, bits, held);
        else
            got = read_at(source->fd, to + done, want, segment->place + skip);
        done += got;
        if (got < want)
            break;
    }
    return done;
}

int64_t source_read_near(const struct source *source, struct page_entries *held, uint64_t address, void *to, uint64_t size, int peeks)
{
    if (size > UINT64_MAX - address)
        size = UINT64_MAX - address;
    if (source->kind == SOURCE_CALL) {
        int64_t got = source->call(address, to, size);
        return got > (int64_t) size ? (int64_t) size : got;
    }
    const uint64_t got = read_segments(source, address, to, size, peeks ? ENTRY_PRESENT : ENTRY_TOUCHED, held);
    return source->until && clock_now() > *source->until ? INTERRUPTED : (int64_t) got;
}

void source_map(const struct source *source)
{
    struct source *mapped = (struct source *) (uintptr_t) source;
    /* not fstat, which is no function of C libraries before 2021 */
    const off_t size = source->kind == SOURCE_FILE && !source->map ? lseek(source->fd, 0, SEEK_END) : 0;
    if (size <= 0)
        return;
    void *map = mmap(NULL, (size_t) size, PROT_READ, MAP_SHARED, source->fd, 0);
    if (map == MAP_FAILED)
        return;
    madvise(map, (size_t) size, MADV_RANDOM);
    mapped->map = map;
    mapped->map_bytes = (uint64_t) size;
}

const uint8_t *source_at(const struct source *source, uint64_t address, uint64_t size)
{
    if (source->copy) {
        const uint8_t *held = NULL;
        uint64_t run = size;
        return copy_run(source->copy, address, &run, &held, 1) == COPIED_HERE && run >= size ? held : NULL;
    }
    if (!source->map)
        return NULL;
    const size_t found = segment_of(source, address);
    if (found == source->segment_count)
        return NULL;
    const struct segment *segment = &source->segments[found];
    const uint64_t skip = address - segment->address;
    if (address < segment->address || skip >= segment->size || segment->size - skip < size || segment->place == NOWHERE)
        return NULL;
    const uint64_t place = segment->place + skip;
    return place < source->map_bytes && source->map_bytes - place >= size ? source->map + place : NULL;
}
