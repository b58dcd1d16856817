/* Memory of a process as it was while it stood still, in memory of ours: it runs on, and whoever walks reads what is kept here.

   What is not written to before the stop costs a page fault in it, three times as much as the copying itself: room is made for each
   mapping, and a little around it, and what the process has touched by then is made present beforehand. */
#define _GNU_SOURCE
#include "copied.h"
#include "memory.h"
#include "pagemap.h"
#include "source.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#define HUGE_BYTES (2ull << 20)
#define PIECE_BYTES (8ull << 20)
#define PIECE_PAGES 2048u
#define POPULATE_WRITE 23   /* MADV_POPULATE_WRITE, Linux 5.14 */
#define ENTRY_SAME (ENTRY_PRESENT | ENTRY_SWAPPED | ENTRY_FILE | ENTRY_MARKED | ENTRY_FRAME)
#define REGIONS 512u
#define ROUND_UP(number, step) (((number) + (step) - 1) / (step) * (step))

struct pass;
struct worker {
    struct pass *pass;
    struct copy_taken taken;
    uint64_t entries[PIECE_PAGES];
    uint8_t kinds[PIECE_PAGES];
    struct scan_region regions[REGIONS];
};

static void free_room(const struct room *room, uint64_t page)
{
    lazy_free(room->mapped, (size_t) (room->size + 2 * HUGE_BYTES));
    lazy_free(room->kinds, (size_t) (room->size / page));
    lazy_free(room->frames, (size_t) (room->size / page) * sizeof *room->frames);
}

void heapx_copy_free(struct copy *copy)
{
    if (!copy)
        return;
    for (size_t i = 0; i < copy->room_count; i++)
        free_room(&copy->rooms[i], copy->table.page);
    free(copy->rooms);
    free(copy->ranges);
    lazy_free(copy->workers, MAX_THREADS * sizeof *copy->workers);
    free(copy);
}

/* `table`: the caller's, as long as this lives, with its page table open. */
struct copy *heapx_copy_new(const struct page_table *table, int memory_fd)
{
    struct copy *copy = calloc(1, sizeof *copy);
    if (!copy || !(copy->workers = lazy_alloc(MAX_THREADS * sizeof *copy->workers))) {
        free(copy);
        return NULL;
    }
    copy->table = *table;
    copy->memory_fd = memory_fd;
    copy->unread_from = UINT64_MAX;
    return copy;
}

static const struct room *room_of(const struct copy *copy, uint64_t address)
{
    for (size_t i = 0; i < copy->room_count; i++)   /* they are few */
        if (address - copy->rooms[i].address < copy->rooms[i].size)
            return &copy->rooms[i];
    return NULL;
}

static int add_room(struct copy *copy, uint64_t begin, uint64_t end)
{
    struct room *rooms = realloc(copy->rooms, (copy->room_count + 1) * sizeof *rooms);
    if (!rooms)
        return 0;
    copy->rooms = rooms;
    struct room room = {.address = begin, .size = end - begin};
    room.mapped = lazy_alloc((size_t) (room.size + 2 * HUGE_BYTES));
    room.kinds = lazy_alloc((size_t) (room.size / copy->table.page));
    room.frames = lazy_alloc((size_t) (room.size / copy->table.page) * sizeof *room.frames);
    if (!room.mapped || !room.kinds || !room.frames) {
        free_room(&room, copy->table.page);
        return 0;
    }
    madvise(room.mapped, (size_t) (room.size + 2 * HUGE_BYTES), MADV_DONTFORK); /* no child needs it: a fork would take 30 ms per GiB */
    room.bytes = (uint8_t *) (uintptr_t) ROUND_UP((uint64_t) (uintptr_t) room.mapped, HUGE_BYTES) + begin % HUGE_BYTES;
    size_t place = copy->room_count++;
    for (; place && rooms[place - 1].address > begin; place--)
        rooms[place] = rooms[place - 1];
    rooms[place] = room;
    return 1;
}

/* What is copied from now on. `ranges`: begin, end and TAKES_... of each, sorted, without overlap, in whole pages. `rooms`: begin and end
   of room to be made, where none is. 0: no memory. */
int heapx_copy_ranges(struct copy *copy, const uint64_t *ranges, uint64_t count, const uint64_t *rooms, uint64_t room_count)
{
    struct copied_range *made = calloc((size_t) count + 1, sizeof *made);
    if (!made)
        return 0;
    free(copy->ranges);
    copy->ranges = made;
    copy->range_count = 0;
    for (uint64_t i = 0; i < room_count; i++)
        if (!add_room(copy, rooms[2 * i], rooms[2 * i + 1]))
            return 0;
    for (uint64_t i = 0; i < count; i++) {
        const struct room *room = room_of(copy, ranges[3 * i]);
        if (!room || ranges[3 * i + 1] - room->address > room->size)
            return 0;
        made[i] = (struct copied_range) {ranges[3 * i], ranges[3 * i + 1], ranges[3 * i + 2], room};
    }
    copy->range_count = (size_t) count;
    return 1;
}

/* ---- one pass over the ranges, by several threads ---- */

struct pass {
    const struct copy *copy;
    void (*work)(struct worker *worker, const struct copied_range *range, uint64_t begin, uint64_t pages);
    const struct source *swap;      /* says what may be brought in from swap */
    const double *until;
    int looks;                      /* all pages of a piece are looked at beforehand */
    int leaves;                     /* what is passed over holds nothing any more */
    int notes_frames;
    pthread_mutex_t lock;
    size_t range;
    uint64_t at, unread_from;
};

/* Nothing is known of these pages any more; most of their kinds were never written. */
static void forget(const struct copy *copy, const struct copied_range *range, uint64_t begin, uint64_t end)
{
    uint8_t *from = kinds_at(copy, range, begin), *until = from + (end - begin) / copy->table.page;
    uint8_t *first = (uint8_t *) (uintptr_t) ROUND_UP((uint64_t) (uintptr_t) from, copy->table.page);
    uint8_t *last = (uint8_t *) ((uintptr_t) until & ~(uintptr_t) (copy->table.page - 1));
    if (first >= last) {
        memset(from, 0, (size_t) (until - from));
        return;
    }
    memset(from, 0, (size_t) (first - from));
    madvise(first, (size_t) (last - first), MADV_DONTNEED);
    memset(last, 0, (size_t) (until - last));
}

/* The next piece: begin and length in pages; 0: there is none. */
static uint64_t claim(struct pass *pass, const struct copied_range **range, uint64_t *begin)
{
    const struct copy *copy = pass->copy;
    const uint64_t page = copy->table.page;
    uint64_t pages = 0;
    pthread_mutex_lock(&pass->lock);
    while (!pages && pass->range < copy->range_count && pass->unread_from == UINT64_MAX) {
        const struct copied_range *here = &copy->ranges[pass->range];
        const uint64_t before = pass->at > here->begin ? pass->at : here->begin;
        uint64_t from = before;
        if (from < here->end)
            from = pages_jump(&copy->table, from / page, here->end / page) * page;
        if (pass->leaves && from > before)
            forget(copy, here, before, from < here->end ? from : here->end);
        if (from >= here->end) {
            pass->range++;
            pass->at = 0;
            continue;
        }
        uint64_t end = ROUND_UP(from + 1, PIECE_BYTES);
        end = end < here->end ? end : here->end;
        *range = here;
        *begin = from;
        pages = (end - from) / page;
        pass->at = end;
        if (pass->until && clock_now() > *pass->until) {
            pass->unread_from = from;
            pages = 0;
        }
    }
    pthread_mutex_unlock(&pass->lock);
    return pages;
}

static void *run_pass(void *item)
{
    struct worker *worker = item;
    struct pass *pass = worker->pass;
    const struct copied_range *range;
    uint64_t begin, pages;
    while ((pages = claim(pass, &range, &begin))) {
        if (pass->looks)
            heapx_pages_look(&pass->copy->table, begin / pass->copy->table.page, pages, worker->entries, worker->kinds);
        pass->work(worker, range, begin, pages);
    }
    return NULL;
}

static void all(struct pass *pass, unsigned threads, struct copy_taken *out)
{
    struct worker *workers = pass->copy->workers;
    pass->unread_from = UINT64_MAX;
    threads = threads < 1 ? 1 : threads > MAX_THREADS ? MAX_THREADS : threads;
    for (unsigned i = 0; i < threads; i++) {
        workers[i].pass = pass;
        workers[i].taken = (struct copy_taken) {0};
    }
    pthread_mutex_init(&pass->lock, NULL);
    threads_run(run_pass, workers, sizeof *workers, threads);
    pthread_mutex_destroy(&pass->lock);
    memset(out, 0, sizeof *out);
    for (unsigned i = 0; i < threads; i++) {
        out->copied_bytes += workers[i].taken.copied_bytes;
        out->unread_bytes += workers[i].taken.unread_bytes;
    }
}

/* A page whose bytes are to be copied, as far as its range takes such pages. */
static int is_taken(const struct copied_range *range, uint64_t entry, uint8_t kind)
{
    if (!(kind & (KIND_RESIDENT | KIND_UNSURE | KIND_SWAPPED)))
        return 0;
    return range->takes == TAKES_ALL || (entry & (ENTRY_PRESENT | ENTRY_FILE)) != (ENTRY_PRESENT | ENTRY_FILE);
}

/* ---- before the stop ---- */

static void make_present(uint8_t *from, uint64_t bytes, uint64_t page)
{
    if (!madvise(from, (size_t) bytes, POPULATE_WRITE))
        return;
    for (uint64_t at = 0; at < bytes; at += page)
        ((volatile uint8_t *) from)[at] = 0;
}

static void prepare_piece(struct worker *worker, const struct copied_range *range, uint64_t begin, uint64_t pages)
{
    const struct copy *copy = worker->pass->copy;
    const uint64_t page = copy->table.page;
    uint8_t *bytes = range->room->bytes + (begin - range->room->address);
    uint64_t touched = 0;
    for (uint64_t i = 0; i < pages; i++)    /* what a move left protected is no page */
        kinds_at(copy, range, begin)[i] = worker->entries[i] & ENTRY_PROTECTED ? 0 : worker->kinds[i] & KIND_SWAPPED;
    for (uint64_t i = 0; i < pages; i++)
        touched += (uint64_t) is_taken(range, worker->entries[i], worker->kinds[i]);
    worker->taken.copied_bytes += touched * page;
    if (pages == PIECE_PAGES && touched > PIECE_PAGES / 8 * 7) {
        madvise(bytes, (size_t) (pages * page), MADV_HUGEPAGE);
        make_present(bytes, pages * page, page);
        return;
    }
    for (uint64_t i = 0, end; i < pages; i = end + 1) {
        for (end = i; end < pages && is_taken(range, worker->entries[end], worker->kinds[end]);)
            end++;
        if (end > i)
            make_present(bytes + i * page, (end - i) * page, page);
    }
}

/* Makes room present for what the process has touched by now, while it runs. */
void heapx_copy_prepare(struct copy *copy, uint64_t threads, struct copy_taken *out)
{
    struct pass pass = {.copy = copy, .work = prepare_piece, .looks = 1};
    all(&pass, (unsigned) threads, out);
}

/* ---- in the stop ---- */

static void keep_run(struct worker *worker, uint64_t first, uint64_t count, int is_kept)
{
    const uint64_t bytes = count * worker->pass->copy->table.page;
    for (uint64_t i = first; i < first + count; i++)
        worker->kinds[i] |= is_kept ? KIND_COPIED : KIND_UNREAD;
    worker->taken.copied_bytes += is_kept ? bytes : 0;
    worker->taken.unread_bytes += is_kept ? 0 : bytes;
}

/* By /proc/PID/mem, not by process_vm_readv, which pins: of a page that was ever shared by fork that is a fault in the process, and may be
   a copy (mm/gup.c: gup_must_unshare), also where no other process has it any more. */
static void read_run(struct worker *worker, uint8_t *to, uint64_t begin, uint64_t first, uint64_t count)
{
    const struct copy *copy = worker->pass->copy;
    const uint64_t page = copy->table.page, got = read_at(copy->memory_fd, to, count * page, begin + first * page) / page;
    keep_run(worker, first, got, 1);
    if (got < count)
        keep_run(worker, first + got, count - got, 0);
}

/* Pages that are in the copy as they are: the same frame, and the kernel has not marked it as written to (soft-dirty) since all marks were
   cleared. The mark alone does not tell: a move of a whole page table (mremap) brings other pages with theirs unchanged, and the zero page
   that comes where dropped memory is read has none. 0 as an entry is none: nothing is kept by it. */
static void keep_unmarked(struct worker *worker, const uint8_t *known, const uint64_t *frames, uint64_t pages)
{
    for (uint64_t i = 0; i < pages; i++)
        if ((known[i] & KIND_COPIED) && frames[i] && (worker->entries[i] & ENTRY_SAME) == frames[i])
            worker->kinds[i] |= KIND_COPIED;
}

/* After it was read. What is marked by now, or swapped, or a file's, or whose frame is not told, is read again next time. */
static void note_frames(const struct worker *worker, uint64_t *frames, uint64_t pages)
{
    for (uint64_t i = 0; i < pages; i++) {
        const uint64_t entry = worker->entries[i] & ENTRY_SAME;
        const int is_plain = entry >> 55 == 1ull << 8 && (entry & ENTRY_FRAME);     /* present, and nothing else */
        const uint64_t noted = worker->pass->notes_frames && (worker->kinds[i] & KIND_COPIED) && is_plain ? entry : 0;
        if (frames[i] != entry && frames[i] != noted)   /* most were never written */
            frames[i] = noted;
    }
}

static void take_piece(struct worker *worker, const struct copied_range *range, uint64_t begin, uint64_t pages)
{
    const struct copy *copy = worker->pass->copy;
    const uint64_t page = copy->table.page;
    uint8_t *bytes = range->room->bytes + (begin - range->room->address), *known = kinds_at(copy, range, begin);
    uint64_t *frames = range->room->frames + (known - range->room->kinds);
    /* Protected pages that do not exist look as if they were in swap: none was there before, and nobody has written to them. */
    for (uint64_t i = 0; copy->is_followed && i < pages; i++)
        if ((worker->entries[i] & (ENTRY_SWAPPED | ENTRY_PROTECTED)) == (ENTRY_SWAPPED | ENTRY_PROTECTED)
                && !(known[i] & (KIND_SWAPPED | KIND_COPIED)))
            worker->kinds[i] = 0;
    if (copy->is_marked)
        keep_unmarked(worker, known, frames, pages);
    for (uint64_t i = 0, end; i < pages; i = end) {
        const uint8_t kind = worker->kinds[i] & (KIND_SWAPPED | KIND_COPIED);
        const int is_wanted = !(kind & KIND_COPIED) && is_taken(range, worker->entries[i], worker->kinds[i]);
        for (end = i + 1; end < pages && (worker->kinds[end] & (KIND_SWAPPED | KIND_COPIED)) == kind
                          && is_taken(range, worker->entries[end], worker->kinds[end]) == is_wanted;)
            end++;
        if (!is_wanted)
            continue;
        uint64_t count = end - i;
        if (kind & KIND_SWAPPED) {
            count = source_bring_in(worker->pass->swap, count);
            keep_run(worker, i + count, end - i - count, 0);
        }
        if (count)
            read_run(worker, bytes + i * page, begin, i, count);
    }
    memcpy(known, worker->kinds, (size_t) pages);
    if (copy->is_marked)
        note_frames(worker, frames, pages);
}

/* Copies all ranges that begin at `from` or behind it. `swap`: an open source of the process, which says what may be brought in from swap.
   The begin of the first range that is not whole since the time was up; UINT64_MAX: there is none. */
uint64_t heapx_copy_take(struct copy *copy, uint64_t threads, const struct source *swap, const double *until, uint64_t from,
                         struct copy_taken *out)
{
    struct pass pass = {.copy = copy, .work = take_piece, .swap = swap, .until = until, .looks = 1};
    while (pass.range < copy->range_count && copy->ranges[pass.range].begin < from)
        pass.range++;
    copy->is_followed = copy->is_marked = 0;
    for (size_t i = 0; !from && i < copy->room_count; i++)      /* zeros again, without a write to each */
        madvise(copy->rooms[i].kinds, (size_t) (copy->rooms[i].size / copy->table.page), MADV_DONTNEED);
    all(&pass, (unsigned) threads, out);
    copy->unread_from = pass.unread_from;
    uint64_t begin = pass.unread_from;
    for (size_t i = 0; i < copy->range_count && copy->ranges[i].begin <= pass.unread_from; i++)
        begin = copy->ranges[i].end > pass.unread_from ? copy->ranges[i].begin : begin;
    return begin;
}

/* ---- what is written to while the process runs, and what was by the time it stands still ---- */

/* Copies what is there, page by page, while the process writes to it. `swap`: as below; `is_marked`: the kernel marks what is written to
   since all marks were cleared, and there are no rounds. */
void heapx_copy_run_along(struct copy *copy, uint64_t threads, const struct source *swap, int is_marked, struct copy_taken *out)
{
    struct pass pass = {.copy = copy, .work = take_piece, .swap = swap, .looks = 1, .notes_frames = is_marked};
    copy->is_followed = !is_marked;
    copy->is_marked = is_marked;
    copy->unread_from = UINT64_MAX;
    all(&pass, (unsigned) threads, out);
}

/* Reads a part of a piece as it is now. */
static void read_anew(struct worker *worker, const struct copied_range *range, uint64_t begin, uint64_t pages)
{
    heapx_pages_look(&worker->pass->copy->table, begin / worker->pass->copy->table.page, pages, worker->entries, worker->kinds);
    take_piece(worker, range, begin, pages);
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
            memset(kinds_at(copy, range, region->start), KIND_COPIED, (size_t) count);  /* protected as it is, it is there: take_piece() */
            read_anew(worker, range, region->start, count);
        }
    }
}

/* Copies what was written to since the last round, while the process runs, and protects it anew. `looks`: also who shares a page. */
void heapx_copy_round(struct copy *copy, uint64_t threads, const struct source *swap, int looks, struct copy_taken *out)
{
    struct pass pass = {.copy = copy, .work = round_piece, .swap = swap, .looks = looks};
    all(&pass, (unsigned) threads, out);
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
            forget(copy, range, begin + at * page, begin + next * page);
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
                forget(copy, range, seen, region->start);
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
        forget(copy, range, seen, end);
}

/* Copies what the rounds have not, of a process that stands still now: ranges are those of now. As heapx_copy_take. */
uint64_t heapx_copy_last(struct copy *copy, uint64_t threads, const struct source *swap, const double *until, struct copy_taken *out)
{
    struct pass pass = {.copy = copy, .work = last_piece, .swap = swap, .until = until, .leaves = 1};
    if (copy->is_marked) {
        pass.work = take_piece;
        pass.looks = 1;
    }
    all(&pass, (unsigned) threads, out);
    return copy->unread_from = pass.unread_from;
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
