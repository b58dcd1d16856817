/* Which pages of a process are written to while it runs: by a userfaultfd of its own that protects memory without anybody answering faults
   (UFFD_FEATURE_WP_ASYNC, Linux 6.7).

   In pieces of 2 MiB, aligned: others split every huge page, and one piece for all keeps the process waiting for its mmap lock. */
#include "heapx.h"

#include <errno.h>
#include <sys/ioctl.h>

#define PIECE_BYTES (2ull << 20)
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
    const uint64_t edge = (at / PIECE_BYTES + 1) * PIECE_BYTES;
    return edge < end ? edge : end;
}

/* 0: it is done. A scan protects for half the time that the userfaultfd takes, but only where page tables are: what comes into being beyond
   shows as written. */
static int protect(int fd, int pagemap, uint64_t begin, uint64_t end)
{
    if (pagemap >= 0) {
        struct scan_arg arg = {.size = sizeof arg, .flags = SCAN_PROTECTS | SCAN_WANTS_FOLLOWED, .start = begin, .end = end};
        arg.category_mask = CATEGORY_WRITTEN | CATEGORY_PRESENT;
        return ioctl(pagemap, SCAN_IOCTL, &arg) < 0;
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
