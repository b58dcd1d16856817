/* Memory of a process as it was while it stood still, in memory of ours: it runs on, and whoever walks reads what is kept here.

   What is not written to before the stop costs a page fault in it, three times as much as the copying itself: room is made for each
   mapping, and a little around it, and what the process has touched by then is made present beforehand. */
#define _GNU_SOURCE
#include "copy_passes.h"
#include "memory.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#define PIECE_BYTES (8ull << 20)
#define POPULATE_WRITE 23   /* MADV_POPULATE_WRITE, Linux 5.14 */
#define ENTRY_SAME (ENTRY_PRESENT | ENTRY_SWAPPED | ENTRY_FILE | ENTRY_MARKED | ENTRY_FRAME)
#define ROUND_UP(number, step) (((number) + (step) - 1) / (step) * (step))

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

/* Nothing is known of these pages any more; most of their kinds were never written. */
void copy_forget(const struct copy *copy, const struct copied_range *range, uint64_t begin, uint64_t end)
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
            copy_forget(copy, here, before, from < here->end ? from : here->end);
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

void copy_run_pass(struct pass *pass, unsigned threads, struct copy_taken *out)
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
    copy_run_pass(&pass, (unsigned) threads, out);
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

void copy_take_piece(struct worker *worker, const struct copied_range *range, uint64_t begin, uint64_t pages)
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
    struct pass pass = {.copy = copy, .work = copy_take_piece, .swap = swap, .until = until, .looks = 1};
    while (pass.range < copy->range_count && copy->ranges[pass.range].begin < from)
        pass.range++;
    copy->is_followed = copy->is_marked = 0;
    for (size_t i = 0; !from && i < copy->room_count; i++)      /* zeros again, without a write to each */
        madvise(copy->rooms[i].kinds, (size_t) (copy->rooms[i].size / copy->table.page), MADV_DONTNEED);
    copy_run_pass(&pass, (unsigned) threads, out);
    copy->unread_from = pass.unread_from;
    uint64_t begin = pass.unread_from;
    for (size_t i = 0; i < copy->range_count && copy->ranges[i].begin <= pass.unread_from; i++)
        begin = copy->ranges[i].end > pass.unread_from ? copy->ranges[i].begin : begin;
    return begin;
}
