/* What C and Python both declare, for all rooms: numbers, structs and functions. tests/unit/kernel/test_declared.py compares them. */
#pragma once

#include <stdint.h>

/* Reads like source_read, in Python. */
typedef int64_t (*read_call)(uint64_t address, void *to, uint64_t size);

/* Asks Python whether long work is to stop. */
typedef int (*stop_call)(void);

/* ---- copy.py ---- */

enum { TAKES_ALL = 0, TAKES_OWN = 1 };
enum { COPIED_HERE = 0, COPIED_NOT = 1, COPIED_UNREAD = 2, COPIED_ELSEWHERE = 3 };
enum {
    KIND_RESIDENT = 1, KIND_UNSURE = 2, KIND_EXCLUSIVE = 4, KIND_SWAPPED = 8, KIND_HUGE = 16, KIND_ZERO = 128,
    KINDS_OF_PAGES = 159
};
enum { KIND_COPIED = 32, KIND_UNREAD = 64 };

struct copy_taken {
    uint64_t copied_bytes, unread_bytes;
};

/* ---- library.py ---- */

enum { HEAPX_ABI = 37, INTERRUPTED = -1, NO_MEMORY = -2 };

/* ---- library.py ---- */

enum {
    STOP_TOP = 0, STOP_END = 1, STOP_FENCE = 2, STOP_SMALL = 3, STOP_MISALIGNED = 4, STOP_MMAPPED_BIT = 5,
    STOP_OVERRUN = 6, STOP_UNREADABLE = 7, STOP_TIME = 8
};
enum { STOPS = 9, HISTOGRAM_EXACT_BYTES = 1024 };

struct residency {
    uint64_t resident_bytes, exclusive_bytes, swapped_bytes, huge_bytes, unsure_bytes;
};

/* ---- watchdog.py ---- */

enum { WATCH_STATE = 0, WATCH_BEGUN = 1, WATCH_ANSWERED = 2 };
enum { WATCH_ON = 0, WATCH_HELD = 1, WATCH_ENDS = 2 };
enum { WATCH_PATHS = 8, WATCH_PATH_BYTES = 4096 };
enum { WATCH_CELLS = 3 };

struct copy;
struct page_table;
struct source;
struct written;

#pragma GCC visibility push(default)

/* ---- copy.py ---- */

struct copy *heapx_copy_new(const struct page_table *table, int memory_fd);
void heapx_copy_free(struct copy *copy);
int heapx_copy_ranges(struct copy *copy, const uint64_t *ranges, uint64_t count, const uint64_t *rooms, uint64_t room_count);
void heapx_copy_prepare(struct copy *copy, uint64_t threads, struct copy_taken *out);
uint64_t heapx_copy_take(struct copy *copy, uint64_t threads, const struct source *swap, const double *until, uint64_t from,
    struct copy_taken *out);
int heapx_copy_run(const struct copy *copy, uint64_t address, uint64_t *run);
uint64_t heapx_copy_kinds(const struct copy *copy, uint64_t address, uint64_t count, uint8_t *kinds);

/* ---- library.py ---- */

struct page_table *heapx_pages_new(int pagemap_fd, int flags_fd, int scans, int knows_huge_zero, const uint64_t *outside_rss,
    uint64_t outside_count, const struct copy *copy);
void heapx_pages_free(struct page_table *table);
uint32_t heapx_abi(void);
uint32_t heapx_source_id(void);
struct source *heapx_source_new(int kind, int fd, read_call call, const uint64_t *segments, uint64_t count);
void heapx_source_process(struct source *source, const double *until, const struct copy *copy, int pagemap_fd, int scans,
    uint64_t *swapped_in, uint64_t *swap_room, const uint64_t *zero, uint64_t zero_count, const uint64_t *brought_in,
    uint64_t brought_count, const uint64_t *unanswered, uint64_t unanswered_count);
void heapx_source_free(struct source *source);
uint64_t heapx_pages_look(const struct page_table *table, uint64_t first, uint64_t count, uint64_t *entries, uint8_t *kinds);
void heapx_residency(const struct page_table *table, const uint64_t *ranges, uint64_t count, int with_exclusive,
    struct residency *out);
int heapx_sort(uint64_t *values, uint64_t count);
uint64_t heapx_words_into(const uint64_t *words, uint64_t count, const uint64_t *ranges, uint64_t range_count, uint64_t mask,
    uint64_t *places);
void heapx_written_free(struct written *job);
struct written *heapx_written_new(const struct source *source, const uint64_t *ranges, uint64_t range_count, uint64_t page);
int64_t heapx_written_slice(struct written *job, double seconds);
uint64_t heapx_written_result(const struct written *job, uint64_t room, uint64_t *out, uint64_t *at);

/* ---- watchdog.py ---- */

uint64_t heapx_watchdog_start(const uint8_t *texts, uint64_t texts_bytes, double until, int wake, int out, int told);
void heapx_watchdog_hold(uint64_t *cells, int holds);

#pragma GCC visibility pop
