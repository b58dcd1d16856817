/* A process is copied while it runs: its pages are protected by a userfaultfd of its own, or marked by the kernel, and those that were
   written to since are read again, in rounds; what is left is read in the stop. */
#define _GNU_SOURCE
#include "gdbheapx_short_stop.h"
#include "common/copy_passes.h"

#include <errno.h>
#include <sys/ioctl.h>

/* Copies what is there, page by page, while the process writes to it. `swap`: as below; `is_marked`: the kernel marks what is written to
   since all marks were cleared, and there are no rounds. */
void heapx_copy_run_along(struct copy *copy, uint64_t threads, const struct source *swap, int is_marked, struct copy_taken *out)
{
    struct pass pass = {.copy = copy, .work = copy_take_piece, .swap = swap, .looks = 1, .notes_frames = is_marked};
    copy->is_followed = !is_marked;
    copy->is_marked = is_marked;
    copy->unread_from = UINT64_MAX;
    copy_run_pass(&pass, (unsigned) threads, out);
}

/* Reads a part of a piece as it is now. */
static void read_anew(struct worker *worker, const struct copied_range *range, uint64_t begin, uint64_t pages)
{
    heapx_pages_look(&worker->pass->copy->table, begin / worker->pass->copy->table.page, pages, worker->entries, worker->kinds);
    copy_take_piece(worker, range, begin, pages);
}

/* Pages that were written to are protected anew, then read: what is written to them meanwhile shows in the next round. */
static void round_piece(struct worker *worker, const struct copied_range *range, uint64_t begin, uint64_t pages)
{
    const struct copy *copy = worker->pass->copy;
    const uint64_t page = copy->table.page, end = begin + pages * page;
    struct scan_arg arg = {.flags = SCAN_PROTECTS, .start = begin, .end = end};
    arg.category_mask = arg.return_mask = CATEGORY_WRITTEN | CATEGORY_PRESENT;
    for (uint64_t i = 0; worker->pass->looks && i < pages; i++) {   /* who shares it may have changed */
        uint8_t *kind = kinds_at(copy, range, begin) + i;
        *kind = (uint8_t) ((*kind & ~KIND_EXCLUSIVE) | (worker->kinds[i] & *kind & KIND_RESIDENT ? worker->kinds[i] & KIND_EXCLUSIVE : 0));
    }
    for (int got = 0; arg.start < end && got >= 0; arg.start = arg.walk_end) {
        got = scan_pages(copy->table.pagemap_fd, &arg, worker->regions, REGIONS);
        for (int i = 0; i < got; i++) {
            const struct scan_region *region = &worker->regions[i];
            const uint64_t count = (region->end - region->start) / page;
            memset(kinds_at(copy, range, region->start), KIND_COPIED, (size_t) count);  /* protected, it is there: copy_take_piece() */
            read_anew(worker, range, region->start, count);
        }
    }
}

/* Copies what was written to since the last round, while the process runs, and protects it anew. `looks`: also who shares a page. */
void heapx_copy_round(struct copy *copy, uint64_t threads, const struct source *swap, int looks, struct copy_taken *out)
{
    struct pass pass = {.copy = copy, .work = round_piece, .swap = swap, .looks = looks};
    copy_run_pass(&pass, (unsigned) threads, out);
}

/* A run of pages that nobody has written to since: their kinds now, and the first that is not in the copy. */
static uint64_t keep_unwritten(uint8_t *kinds, uint64_t count, uint64_t categories)
{
    const uint8_t place = categories & CATEGORY_PRESENT ? KIND_RESIDENT : KIND_SWAPPED;
    const uint8_t now = (uint8_t) (place | (categories & CATEGORY_HUGE ? KIND_HUGE : 0));
    uint64_t i = 0;
    for (; i < count && (kinds[i] & KIND_COPIED); i++)
        kinds[i] = (uint8_t) ((kinds[i] & ((categories & CATEGORY_PRESENT) ? KIND_COPIED | KIND_EXCLUSIVE : KIND_COPIED)) | now);
    return i;
}

/* The first of some pages from one on that is not in the copy although there was something; `count`: none. */
static uint64_t next_lacking(const uint8_t *kinds, uint64_t from, uint64_t count)
{
    const uint64_t copied = KIND_COPIED * (UINT64_MAX / 255);
    for (uint64_t eight; from < count; from++) {
        for (; count - from >= 8 && (memcpy(&eight, kinds + from, 8), !eight || (eight & copied) == copied); from += 8)
            ;
        if (from < count && kinds[from] && !(kinds[from] & (KIND_COPIED | KIND_ZERO)))
            break;
    }
    return from;
}

/* A piece of memory that is followed throughout, by the one question that the kernel answers in a third of the time: what was written to.
   A page that is gone counts as written, unless its whole page table is gone, which that of the first page is not. 0: not all of it is
   followed. */
static int last_followed(struct worker *worker, const struct copied_range *range, uint64_t begin, uint64_t pages)
{
    const struct copy *copy = worker->pass->copy;
    const uint64_t page = copy->table.page, end = begin + pages * page;
    struct scan_arg arg = {.flags = SCAN_WANTS_FOLLOWED, .start = begin, .end = end};
    uint8_t *kinds = kinds_at(copy, range, begin);
    arg.category_mask = arg.return_mask = CATEGORY_WRITTEN;
    for (; arg.start < end; arg.start = arg.walk_end) {
        const int got = scan_pages(copy->table.pagemap_fd, &arg, worker->regions, REGIONS);
        if (got < 0)
            return 0;
        for (int i = 0; i < got; i++) {
            const struct scan_region *region = &worker->regions[i];
            const uint64_t first = (region->start - begin) / page, count = (region->end - region->start) / page;
            for (uint64_t j = first; j < first + count; j++)
                kinds[j] &= KIND_SWAPPED;   /* what is in the copy is old */
            read_anew(worker, range, region->start, count);
        }
    }
    const uint64_t number = begin / page;
    for (uint64_t at = 0, next; at < pages; at = next) {
        next = ((begin + at * page) / copy->table.huge + 1) * copy->table.huge / page - number;
        next = next < pages ? next : pages;
        uint64_t known = at;
        while (known < next && !kinds[known])
            known++;
        if (at && known < next && pages_jump(&copy->table, number + at, number + next) == number + next)   /* nothing is there any more */
            copy_forget(copy, range, begin + at * page, begin + next * page);
    }
    for (uint64_t at = 0, next; (at = next_lacking(kinds, at, pages)) < pages; at = next) {
        for (next = at + 1; next < pages && next_lacking(kinds, next, next + 1) == next;)
            next++;
        read_anew(worker, range, begin + at * page, next - at);
    }
    return 1;
}

static void last_piece(struct worker *worker, const struct copied_range *range, uint64_t begin, uint64_t pages)
{
    const struct copy *copy = worker->pass->copy;
    const uint64_t page = copy->table.page, end = begin + pages * page;
    struct scan_arg arg = {.start = begin, .end = end};
    uint64_t seen = begin;
    if (range->takes != TAKES_ALL) {
        read_anew(worker, range, begin, pages);
        return;
    }
    if (last_followed(worker, range, begin, pages))
        return;
    arg.category_anyof_mask = CATEGORY_PRESENT | CATEGORY_SWAPPED;
    arg.return_mask = CATEGORY_PRESENT | CATEGORY_SWAPPED | CATEGORY_FOLLOWED | CATEGORY_WRITTEN | CATEGORY_ZERO_PAGE | CATEGORY_HUGE;
    for (; arg.start < end; arg.start = arg.walk_end) {
        const int got = scan_pages(copy->table.pagemap_fd, &arg, worker->regions, REGIONS);
        if (got < 0) {
            read_anew(worker, range, arg.start, (end - arg.start) / page);
            return;
        }
        for (int i = 0; i < got; i++) {
            const struct scan_region *region = &worker->regions[i];
            const uint64_t what = region->categories, count = (region->end - region->start) / page;
            uint8_t *kinds = kinds_at(copy, range, region->start);
            if (region->start > seen)
                copy_forget(copy, range, seen, region->start);
            seen = region->end;
            uint64_t kept = 0;
            if ((what & (CATEGORY_FOLLOWED | CATEGORY_WRITTEN | CATEGORY_ZERO_PAGE)) == CATEGORY_FOLLOWED)
                kept = keep_unwritten(kinds, count, what);
            else
                for (uint64_t j = 0; j < count; j++)
                    kinds[j] &= KIND_SWAPPED;   /* what is in the copy is old */
            while (kept < count) {
                uint64_t until = kept + 1;
                while (until < count && !(kinds[until] & KIND_COPIED))
                    until++;
                read_anew(worker, range, region->start + kept * page, until - kept);
                kept = until + (until < count ? keep_unwritten(kinds + until, count - until, what) : 0);
            }
        }
    }
    if (seen < end)
        copy_forget(copy, range, seen, end);
}

/* Copies what the rounds have not, of a process that stands still now: ranges are those of now. As heapx_copy_take. */
uint64_t heapx_copy_last(struct copy *copy, uint64_t threads, const struct source *swap, const double *until, struct copy_taken *out)
{
    struct pass pass = {.copy = copy, .work = last_piece, .swap = swap, .until = until, .leaves = 1};
    if (copy->is_marked) {
        pass.work = copy_take_piece;
        pass.looks = 1;
    }
    copy_run_pass(&pass, (unsigned) threads, out);
    return copy->unread_from = pass.unread_from;
}

/* The first page in RAM of these ranges (begin, end) that has no mark of a write; UINT64_MAX: all have it. */
uint64_t heapx_pages_unmarked(const struct page_table *table, const uint64_t *ranges, uint64_t count)
{
    uint64_t entries[WINDOW_PAGES];
    for (uint64_t i = 0; i < count; i++)
        for (uint64_t number = ranges[2 * i] / table->page, got; number < ranges[2 * i + 1] / table->page; number += got) {
            const uint64_t left = ranges[2 * i + 1] / table->page - number;
            if (!(got = read_at(table->pagemap_fd, (uint8_t *) entries, (left < WINDOW_PAGES ? left : WINDOW_PAGES) * 8, number * 8) / 8))
                break;
            for (uint64_t j = 0; j < got; j++)
                if ((entries[j] & (ENTRY_PRESENT | ENTRY_MARKED)) == ENTRY_PRESENT)
                    return (number + j) * table->page;
        }
    return UINT64_MAX;
}

/* ---- which pages are written to while the process runs: by a userfaultfd of its own that protects memory without anybody answering faults
   (UFFD_FEATURE_WP_ASYNC, Linux 6.7). In pieces of 2 MiB, aligned: others split every huge page, and one piece for all keeps the process
   waiting for its mmap lock. ---- */

#define API_NUMBER 0xaaull                      /* linux/userfaultfd.h; older headers lack some of it */
#define FEATURE_UNPOPULATED (1ull << 13)
#define FEATURE_ASYNC (1ull << 15)
#define REGISTER_PROTECTS (1ull << 1)
#define PROTECTS 1ull
#define MOST_TRIES 1000u                        /* to protect a piece: what stays unprotected shows as written */

struct api {
    uint64_t api, features, ioctls;
};
struct registered {
    uint64_t start, length, mode, ioctls;
};
struct protected_range {
    uint64_t start, length, mode;
};
struct plain_range {
    uint64_t start, length;
};
#define API_IOCTL _IOWR(0xaa, 0x3f, struct api)
#define REGISTER_IOCTL _IOWR(0xaa, 0x00, struct registered)
#define UNREGISTER_IOCTL _IOR(0xaa, 0x01, struct plain_range)
#define PROTECT_IOCTL _IOWR(0xaa, 0x06, struct protected_range)

/* 0: the descriptor can do it from now on; else the errno. */
int heapx_follow_begin(int fd)
{
    struct api api = {API_NUMBER, FEATURE_ASYNC | FEATURE_UNPOPULATED, 0};
    return ioctl(fd, API_IOCTL, &api) ? errno : 0;
}

static uint64_t piece_end(uint64_t at, uint64_t end)
{
    const uint64_t edge = (at / HUGE_BYTES + 1) * HUGE_BYTES;
    return edge < end ? edge : end;
}

/* 0: it is done. A scan protects for half the time that the userfaultfd takes, but only where page tables are: what comes into being beyond
   shows as written. */
static int protect(int fd, int pagemap, uint64_t begin, uint64_t end)
{
    if (pagemap >= 0) {
        struct scan_arg arg = {.flags = SCAN_PROTECTS | SCAN_WANTS_FOLLOWED, .start = begin, .end = end};
        arg.category_mask = CATEGORY_WRITTEN | CATEGORY_PRESENT;
        return scan_pages(pagemap, &arg, NULL, 0) < 0;
    }
    struct protected_range piece = {begin, end - begin, PROTECTS};
    return ioctl(fd, PROTECT_IOCTL, &piece);
}

/* Protects each range (begin, end): of how many bytes. What cannot be followed, as it is gone or somebody else does, shows as written.
   `pagemap`: of the process, to protect by scans; -1: by the userfaultfd. */
uint64_t heapx_follow_ranges(int fd, int pagemap, const uint64_t *ranges, uint64_t count)
{
    uint64_t followed = 0;
    for (uint64_t i = 0; i < count; i++) {
        struct registered range = {ranges[2 * i], ranges[2 * i + 1] - ranges[2 * i], REGISTER_PROTECTS, 0};
        if (ioctl(fd, REGISTER_IOCTL, &range))
            continue;
        for (uint64_t at = ranges[2 * i], end; at < ranges[2 * i + 1]; at = end) {
            end = piece_end(at, ranges[2 * i + 1]);
            int failed;
            unsigned tries = 0;
            while ((failed = protect(fd, pagemap, at, end)) && (errno == EAGAIN || errno == EINTR) && ++tries < MOST_TRIES)
                ;
            followed += failed ? 0 : end - at;
        }
    }
    return followed;
}

/* Nothing is protected any more. Ranges as they were given.

   Registered once more, as the kernel takes the protection away in registered memory alone: a mapping that mremap() moves beside one of
   these, merges with it, and from then on neither is registered. What is registered already costs nothing. */
void heapx_follow_end(int fd, const uint64_t *ranges, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++)
        for (uint64_t at = ranges[2 * i], end; at < ranges[2 * i + 1]; at = end) {
            end = piece_end(at, ranges[2 * i + 1]);
            struct registered lost = {at, end - at, REGISTER_PROTECTS, 0};
            struct plain_range piece = {at, end - at};
            (void) ioctl(fd, REGISTER_IOCTL, &lost);
            (void) ioctl(fd, UNREGISTER_IOCTL, &piece);   /* a piece that is gone has none */
        }
}
