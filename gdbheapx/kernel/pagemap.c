/* Which pages of a live process are in memory: /proc/PID/pagemap. */
#define _GNU_SOURCE
#include "heapx.h"

#include <errno.h>
#include <unistd.h>

#define PAGE_PRESENT (1ull << 63)
#define PAGE_SWAPPED (1ull << 62)
/* Mapped by this process alone. The shared zero page, which reading a never-touched page maps, is present and not exclusive. */
#define PAGE_EXCLUSIVE (1ull << 56)

void resident_open(struct resident_window *window, int fd)
{
    window->fd = fd;
    window->page = (uint64_t) sysconf(_SC_PAGESIZE);
    window->first = window->count = 0;
}

static void load_entries(struct resident_window *window, uint64_t first)
{
    ssize_t got;
    do {
        got = pread(window->fd, window->entries, sizeof window->entries, (off_t) (first * 8));
    } while (got < 0 && errno == EINTR);
    window->first = first;
    window->count = got > 0 ? (uint64_t) got / 8 : 0;
}

void resident_add(struct resident_window *window, uint64_t begin, uint64_t end, struct residency *sum)
{
    uint64_t first = begin / window->page, last = end / window->page;
    while (first < last) {
        if (first - window->first >= window->count) {
            load_entries(window, first);
            if (!window->count)
                return;
        }
        uint64_t here = window->first + window->count < last ? window->first + window->count : last;
        for (; first < here; first++) {
            uint64_t entry = window->entries[first - window->first];
            uint64_t present = (entry & PAGE_PRESENT) ? window->page : 0;
            sum->present_bytes += present;
            sum->exclusive_bytes += (entry & PAGE_EXCLUSIVE) ? present : 0;
            sum->swapped_bytes += (entry & PAGE_SWAPPED) ? window->page : 0;
        }
    }
}

/* `ranges`: begin, end of each; `out`: exclusive, present and swapped bytes. */
EXPORT void heapx_resident(int fd, const uint64_t *ranges, uint64_t count, uint64_t *out)
{
    struct resident_window window;
    struct residency sum = {0, 0, 0};
    resident_open(&window, fd);
    for (uint64_t i = 0; i < count; i++)
        resident_add(&window, ranges[2 * i], ranges[2 * i + 1], &sum);
    out[0] = sum.exclusive_bytes;
    out[1] = sum.present_bytes;
    out[2] = sum.swapped_bytes;
}
