/* What is read of a copy of a process's memory. */
#include "copied.h"

static const struct copied_range *range_of(const struct copy *copy, uint64_t address)
{
    const uint64_t low = rows_up_to(copy->ranges, copy->range_count, sizeof *copy->ranges, address);
    return low && address < copy->ranges[low - 1].end ? &copy->ranges[low - 1] : NULL;
}

/* `run`: how many bytes are asked for, then for how many the answer holds, and where they are held. */
int heapx_copy_run(const struct copy *copy, uint64_t address, uint64_t *run)
{
    const uint8_t *held = NULL;
    const int what = copy_run(copy, address, &run[0], &held, 1);
    run[1] = (uint64_t) (uintptr_t) held;
    return what;
}

int copy_run(const struct copy *copy, uint64_t address, uint64_t *bytes, const uint8_t **held, int with_swapped)
{
    const struct copied_range *range = range_of(copy, address);
    if (!range) {
        const struct copied_range *next = copy->ranges, *end = next + copy->range_count;
        while (next < end && next->begin <= address)
            next++;
        if (next < end && next->begin - address < *bytes)
            *bytes = next->begin - address;
        return COPIED_ELSEWHERE;
    }
    const uint64_t page = copy->table.page, most = range->end - address < *bytes ? range->end - address : *bytes;
    const uint8_t wanted = KIND_COPIED | KIND_UNREAD | KIND_RESIDENT | (with_swapped ? 0 : KIND_SWAPPED);
    const uint8_t *kinds = kinds_at(copy, range, address);
    const uint8_t kind = *kinds & wanted;
    uint64_t length = page - address % page;
    for (; length < most && (*++kinds & wanted) == kind; length += page)
        ;
    *bytes = length < most ? length : most;
    *held = range->room->bytes + (address - range->room->address);
    if (kind & KIND_COPIED)     /* also what was in swap: it costs nothing any more */
        return COPIED_HERE;
    if (kind & KIND_SWAPPED)
        return COPIED_NOT;
    if (kind & KIND_RESIDENT && !(kind & KIND_UNREAD))      /* the mapped file's: no zeros, and as it was */
        return COPIED_ELSEWHERE;
    if (!kind && address < copy->unread_from && copy->unread_from - address < *bytes)
        *bytes = copy->unread_from - address;
    return kind & KIND_UNREAD || address >= copy->unread_from ? COPIED_UNREAD : COPIED_NOT;
}

/* KIND_... of so many pages from the address on; of how many there are any. */
uint64_t heapx_copy_kinds(const struct copy *copy, uint64_t address, uint64_t count, uint8_t *kinds)
{
    const struct copied_range *range = range_of(copy, address);
    if (!range)
        return 0;
    const uint64_t left = (range->end - address) / copy->table.page;
    const uint8_t *known = kinds_at(copy, range, address);
    count = count < left ? count : left;
    for (uint64_t i = 0; i < count; i++)
        kinds[i] = known[i] & KINDS_OF_PAGES;
    return count;
}

uint64_t copy_next(const struct copy *copy, uint64_t first, uint64_t last)
{
    const uint64_t page = copy->table.page;
    const struct copied_range *range = range_of(copy, first * page);
    if (!range)
        return first;
    const uint64_t end = range->end / page < last ? range->end / page : last;
    for (const uint8_t *kinds = kinds_at(copy, range, first * page); first < end && !*kinds; kinds++)
        first++;
    return first;
}

int copy_touched(const struct copy *copy, uint64_t address, uint64_t end, struct blanks *blanks)
{
    const uint64_t page = copy->table.page, last = (end + page - 1) / page;
    const struct copied_range *range = range_of(copy, address);
    if (!range)
        return 0;
    uint64_t number = copy_next(copy, address / page, last);
    blanks->from = number * page;
    for (; number < range->end / page && *kinds_at(copy, range, number * page); number++)
        ;
    blanks->until = number * page;
    return 1;
}
