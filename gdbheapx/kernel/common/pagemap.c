/* Which pages of a live process are in RAM: /proc/PID/pagemap, and PAGEMAP_SCAN where this kernel has it. */
#define _GNU_SOURCE
#include "pagemap.h"
#include "copied.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define FLAG_ZERO_PAGE (1ull << 24)     /* /proc/kpageflags: KPF_ZERO_PAGE, the small one and the huge one */

#define REGIONS_AT_ONCE 128u
#define PAGES_WORTH_A_JUMP 512u     /* what one page of the page table maps: less is read as fast as it is asked for */

/* `outside_rss`: begin and end of each range that RSS does not count (sorted), the caller's. `copy`: whoever asks is told of the pages in
   it as they were when it was made; may be NULL. NULL: no memory. */
struct page_table *heapx_pages_new(int pagemap_fd, int flags_fd, int scans, int knows_huge_zero, const uint64_t *outside_rss,
                                   uint64_t outside_count, const struct copy *copy)
{
    struct page_table *table = calloc(1, sizeof *table);
    if (!table)
        return NULL;
    table->pagemap_fd = pagemap_fd;
    table->flags_fd = flags_fd;
    table->scans = scans;
    table->knows_huge_zero = knows_huge_zero;
    table->outside_rss = outside_rss;
    table->outside_count = (size_t) outside_count;
    table->copy = copy;
    table->page = (uint64_t) sysconf(_SC_PAGESIZE);
    table->huge = table->page * (table->page / 8);  /* what one entry of the second level maps */
    return table;
}

void heapx_pages_free(struct page_table *table)
{
    free(table);
}

int scan_pages(int pagemap_fd, struct scan_arg *arg, struct scan_region *regions, uint64_t count)
{
    int got;
    arg->size = sizeof *arg;
    arg->regions = (uint64_t) (uintptr_t) regions;
    arg->region_count = count;
    do {
        got = ioctl(pagemap_fd, SCAN_IOCTL, arg);
    } while (got < 0 && errno == EINTR);
    return arg->walk_end > arg->start ? got : -1;
}

void page_window_open(struct page_window *window, const struct page_table *table)
{
    window->table = table;
    window->first = window->count = 0;
}

static uint64_t read_numbers(int fd, uint64_t *to, uint64_t count, uint64_t first)
{
    ssize_t got;
    do {
        got = pread(fd, to, (size_t) count * 8, (off_t) (first * 8));
    } while (got < 0 && errno == EINTR);
    return got > 0 ? (uint64_t) got / 8 : 0;
}

/* A page that is present and not mapped by this process alone: shared after fork, or the zero page, which is in nobody's RSS. (Bit 61,
   "of a file", tells nothing: the huge zero page has it.) */
static uint8_t kind_of_shared(const struct page_table *table, uint64_t entry)
{
    uint64_t frame = entry & ENTRY_FRAME, flags;
    if (table->flags_fd < 0 || !frame || !read_numbers(table->flags_fd, &flags, 1, frame))
        return KIND_UNSURE;
    return (flags & FLAG_ZERO_PAGE) ? KIND_ZERO : KIND_RESIDENT;
}

static uint8_t kind_of(const struct page_table *table, uint64_t entry)
{
    if (!(entry & ENTRY_PRESENT))
        return (entry & (ENTRY_SWAPPED | ENTRY_GUARD)) == ENTRY_SWAPPED && !entry_is_mark(entry) ? KIND_SWAPPED : 0;
    if (entry & ENTRY_EXCLUSIVE)
        return KIND_RESIDENT | KIND_EXCLUSIVE;
    return table->scans ? KIND_UNSURE : kind_of_shared(table, entry);
}

/* What PAGEMAP_SCAN says of one run of pages: the zero page, or part of a huge one. */
static void apply_scan(const struct page_table *table, uint64_t first, const uint64_t *entries, uint8_t *kinds,
                       const struct scan_region *region)
{
    for (uint64_t number = region->start / table->page; number < region->end / table->page; number++) {
        uint8_t *kind = &kinds[number - first];
        if (region->categories & CATEGORY_ZERO_PAGE) {
            *kind = KIND_ZERO;
        } else if (*kind & (KIND_RESIDENT | KIND_UNSURE)) {
            if ((*kind & KIND_UNSURE) && !table->knows_huge_zero) {
                *kind = kind_of_shared(table, entries[number - first]);
                if (*kind & KIND_ZERO)
                    continue;
            }
            *kind |= KIND_HUGE;
        }
    }
}

static void scan(const struct page_table *table, uint64_t first, uint64_t count, const uint64_t *entries, uint8_t *kinds)
{
    struct scan_region regions[REGIONS_AT_ONCE];
    struct scan_arg arg = {.start = first * table->page, .end = (first + count) * table->page};
    arg.category_anyof_mask = arg.return_mask = CATEGORY_ZERO_PAGE | CATEGORY_HUGE;
    for (; arg.start < arg.end; arg.start = arg.walk_end) {
        const int got = scan_pages(table->pagemap_fd, &arg, regions, REGIONS_AT_ONCE);
        if (got < 0)
            return;     /* what is unsure stays so */
        for (int i = 0; i < got; i++)
            apply_scan(table, first, entries, kinds, &regions[i]);
    }
    /* All others that were unsure are no zero page, and no huge one whose kind this kernel mistakes. */
    for (uint64_t i = 0; i < count; i++)
        if ((kinds[i] & (KIND_UNSURE | KIND_HUGE)) == KIND_UNSURE)
            kinds[i] = KIND_RESIDENT;
        else if (table->knows_huge_zero && (kinds[i] & KIND_UNSURE))
            kinds[i] = KIND_RESIDENT | KIND_HUGE;
}

uint64_t heapx_pages_look(const struct page_table *table, uint64_t first, uint64_t count, uint64_t *entries, uint8_t *kinds)
{
    unsigned any = 0;
    count = read_numbers(table->pagemap_fd, entries, count, first);
    for (uint64_t i = 0; i < count; i++)
        any |= kinds[i] = kind_of(table, entries[i]);
    if (table->scans && (any & (KIND_RESIDENT | KIND_UNSURE)))
        scan(table, first, count, entries, kinds);
    return count;
}

static void load(struct page_window *window, uint64_t first)
{
    const struct page_table *table = window->table;
    uint64_t entries[WINDOW_PAGES];
    window->next = window->count && first - (window->first + window->count) < window->count ? window->next * 4 : FIRST_PAGES;
    if (window->next > WINDOW_PAGES)
        window->next = WINDOW_PAGES;
    window->first = first;
    window->count = table->copy ? heapx_copy_kinds(table->copy, first * table->page, window->next, window->kinds) : 0;
    if (!window->count)
        window->count = heapx_pages_look(table, first, window->next, entries, window->kinds);
}

uint64_t pages_jump(const struct page_table *table, uint64_t number, uint64_t last)
{
    struct scan_region region;
    if (table->copy)
        return copy_next(table->copy, number, last);
    if (!table->scans)
        return number;
    struct scan_arg arg = {.start = number * table->page, .end = last * table->page, .max_pages = 1};
    arg.category_anyof_mask = arg.return_mask = CATEGORY_PRESENT | CATEGORY_SWAPPED;
    const int got = scan_pages(table->pagemap_fd, &arg, &region, 1);
    if (got < 0)
        return number;  /* it is read as it stands */
    const uint64_t found = (got ? region.start : arg.walk_end) / table->page;
    return found > number ? found : number;
}

static int in_rss(const struct page_table *table, uint64_t address, uint64_t *until)
{
    *until = UINT64_MAX;
    for (size_t i = 0; i < table->outside_count; i++) {
        if (address < table->outside_rss[2 * i]) {
            *until = table->outside_rss[2 * i];
            return 1;
        }
        if (address < table->outside_rss[2 * i + 1]) {
            *until = table->outside_rss[2 * i + 1];
            return 0;
        }
    }
    return 1;
}

static void add(const struct page_table *table, uint64_t number, uint8_t kind, uint64_t begin, uint64_t end, struct residency *sum)
{
    uint64_t here = number * table->page, block = here & ~(table->huge - 1);
    if (kind & KIND_SWAPPED)
        sum->swapped_bytes += table->page;
    if (kind & KIND_UNSURE)
        sum->unsure_bytes += table->page;
    if (!(kind & KIND_RESIDENT))
        return;
    sum->resident_bytes += table->page;
    if (kind & KIND_HUGE)
        sum->huge_bytes += table->page;
    /* A part of a huge page leaves RSS at once, and the machine gets it back when the kernel splits it: later, or never. */
    if ((kind & KIND_EXCLUSIVE) && (!(kind & KIND_HUGE) || (block >= begin && block + table->huge <= end)))
        sum->exclusive_bytes += table->page;
}

void page_window_add(struct page_window *window, uint64_t begin, uint64_t end, struct residency *sum)
{
    const struct page_table *table = window->table;
    uint64_t number = begin / table->page, last = end / table->page, until;
    while (number < last) {
        if (number - window->first >= window->count) {
            if (last - number >= PAGES_WORTH_A_JUMP && (number = pages_jump(table, number, last)) >= last)
                return;
            load(window, number);
            if (!window->count)
                return;
        }
        uint64_t here = window->first + window->count < last ? window->first + window->count : last;
        int counted = in_rss(table, number * table->page, &until);
        if (until / table->page < here)
            here = until / table->page;
        for (; counted && number < here; number++)
            if (window->kinds[number - window->first])
                add(table, number, window->kinds[number - window->first], begin, end, sum);
        number = here;
    }
}

uint8_t page_kind(struct page_window *window, uint64_t address)
{
    uint64_t number = address / window->table->page;
    if (number - window->first >= window->count)
        load(window, number);
    return number - window->first < window->count ? window->kinds[number - window->first] : 0;
}

uint64_t page_next_resident(struct page_window *window, uint64_t address, uint64_t end)
{
    const struct page_table *table = window->table;
    uint64_t number = address / table->page;
    const uint64_t last = (end + table->page - 1) / table->page;
    for (; number - window->first < window->count && number < last; number++)
        if (window->kinds[number - window->first] & (KIND_RESIDENT | KIND_UNSURE))
            return number * table->page;
    if (number < last && last - number >= PAGES_WORTH_A_JUMP)
        number = pages_jump(table, number, last);
    return number * table->page < end ? number * table->page : end;
}

/* The same, but for exclusive_bytes, from the page table alone: the record of a page, which tells who else has it, is in no cache. Up to
   where; what this cannot tell is left to page_window_add(). */
static uint64_t add_scanned(struct page_window *window, uint64_t begin, uint64_t end, struct residency *sum)
{
    const struct page_table *table = window->table;
    struct scan_region regions[REGIONS_AT_ONCE];
    struct scan_arg arg = {.start = begin, .end = end};
    const uint64_t unclear = CATEGORY_SWAPPED | (table->knows_huge_zero ? 0 : CATEGORY_HUGE);
    arg.category_anyof_mask = CATEGORY_PRESENT | CATEGORY_SWAPPED;
    arg.return_mask = CATEGORY_PRESENT | CATEGORY_SWAPPED | CATEGORY_ZERO_PAGE | CATEGORY_HUGE;
    for (int got; arg.start < end; arg.start = arg.walk_end) {
        got = scan_pages(table->pagemap_fd, &arg, regions, REGIONS_AT_ONCE);
        if (got < 0)
            break;
        for (int i = 0; i < got; i++) {
            const uint64_t what = regions[i].categories;
            uint64_t at = regions[i].start, until;
            if (what & unclear)
                page_window_add(window, at, regions[i].end, sum);
            for (; at < regions[i].end && !(what & (unclear | CATEGORY_ZERO_PAGE)); at = until) {
                const int counted = in_rss(table, at, &until);
                until = until < regions[i].end ? until : regions[i].end;
                sum->resident_bytes += counted ? until - at : 0;
                sum->huge_bytes += counted && (what & CATEGORY_HUGE) ? until - at : 0;
            }
        }
    }
    return arg.start;
}

/* `ranges`: begin, end of each; `out`: struct residency. `with_exclusive`: exclusive_bytes is wanted; else it is 0. */
void heapx_residency(const struct page_table *table, const uint64_t *ranges, uint64_t count, int with_exclusive, struct residency *out)
{
    struct page_window window;
    memset(out, 0, sizeof *out);
    page_window_open(&window, table);
    for (uint64_t i = 0; i < count; i++) {
        uint64_t begin = ranges[2 * i];
        if (!with_exclusive && table->scans && !table->copy)
            begin = add_scanned(&window, begin, ranges[2 * i + 1], out);
        page_window_add(&window, begin, ranges[2 * i + 1], out);
    }
    if (!with_exclusive)
        out->exclusive_bytes = 0;
}
