/* Linked lists: the singly linked ones of fastbins and tcaches, and the doubly linked bins. */
#include "heapx.h"

#include <stdlib.h>

/* Short lists are read link by link; long ones through pages, since neighbours in a list are often neighbours in memory. */
#define DIRECT_READS 32u

/* One list being followed; batches keep Ctrl-C alive and the caller's buffer small. */
struct list {
    struct geometry geometry;
    struct pages pages;
    uint64_t entry, previous, header, done, limit;
    uint64_t link_offset, mem_offset;
    int mangled, problem, ended;
    uint64_t at;
    uint64_t bytes, raw_bytes, raw_min, raw_max;
};

EXPORT void heapx_list_free(struct list *list)
{
    if (list)
        pages_close(&list->pages);
    free(list);
}

static struct list *list_new(const struct source *source, const uint64_t *geometry, uint64_t limit)
{
    struct list *list = calloc(1, sizeof *list);
    if (!list)
        return NULL;
    geometry_set(&list->geometry, geometry);
    pages_open(&list->pages, source, DIRECT_READS);
    list->limit = limit;
    return list;
}

static int end_list(struct list *list, int problem, uint64_t at)
{
    list->problem = problem;
    list->at = at;
    list->ended = 1;
    return problem;
}

/* `numbers`: head, link_offset, mem_offset, mangled, limit. */
EXPORT struct list *heapx_single_new(const struct source *source, const uint64_t *geometry, const uint64_t *numbers)
{
    struct list *list = list_new(source, geometry, numbers[4]);
    if (!list)
        return NULL;
    list->entry = numbers[0];
    list->link_offset = numbers[1];
    list->mem_offset = numbers[2];
    list->mangled = numbers[3] != 0;
    return list;
}

static int misaligned(const struct list *list, uint64_t address)
{
    return ((address + list->mem_offset) & (list->geometry.alignment - 1)) != 0;
}

/* Writes up to `room` entries; returns how many. Fewer than `room`: the list ended, or the reading call was interrupted. */
EXPORT uint64_t heapx_single_next(struct list *list, uint64_t *out, uint64_t room)
{
    const unsigned word = list->geometry.word;
    const uint64_t mask = word == 8 ? UINT64_MAX : UINT32_MAX;
    uint64_t count = 0;
    uint8_t bytes[8];
    list->pages.interrupted = 0;
    while (count < room && !list->ended) {
        uint64_t entry = list->entry, field = (entry + list->link_offset) & mask;
        if (!entry)
            end_list(list, PROBLEM_NONE, 0);
        else if (misaligned(list, entry))
            end_list(list, PROBLEM_UNALIGNED, entry);
        else if (list->done >= list->limit)
            end_list(list, PROBLEM_TOO_LONG, entry);
        else if (!pages_read(&list->pages, field, bytes, word)) {
            if (list->pages.interrupted)
                break;
            end_list(list, PROBLEM_UNREADABLE, entry);
        } else {
            out[count++] = entry;
            list->done++;
            list->entry = load_word(bytes, word, list->geometry.swap);
            if (list->mangled)  /* PROTECT_PTR / REVEAL_PTR, malloc.c: always by 12 bits */
                list->entry = (list->entry ^ field >> 12) & mask;
        }
    }
    return count;
}

/* `numbers`: header, limit. A bin header acts as a chunk: its fd lies at header + 2 words. */
EXPORT struct list *heapx_bin_new(const struct source *source, const uint64_t *geometry, const uint64_t *numbers)
{
    struct list *list = list_new(source, geometry, numbers[1]);
    if (!list)
        return NULL;
    list->header = numbers[0];
    list->mem_offset = 2 * list->geometry.word;
    return list;
}

static int bin_start(struct list *list)
{
    const unsigned word = list->geometry.word;
    uint8_t bytes[8];
    if (!pages_read(&list->pages, list->header + 2 * word, bytes, word))
        return list->pages.interrupted ? PROBLEM_PAUSED : end_list(list, PROBLEM_UNREADABLE, list->header);
    list->entry = load_word(bytes, word, list->geometry.swap);
    list->previous = list->header;
    return PROBLEM_NONE;
}

/* The list came back: the header's bk must name the last chunk. */
static int bin_close(struct list *list)
{
    const unsigned word = list->geometry.word;
    uint8_t bytes[8];
    if (!pages_read(&list->pages, list->header + 3 * word, bytes, word))
        return list->pages.interrupted ? PROBLEM_PAUSED : end_list(list, PROBLEM_UNREADABLE, list->header);
    int good = load_word(bytes, word, list->geometry.swap) == list->previous;
    return end_list(list, good ? PROBLEM_NONE : PROBLEM_BACK_LINK, good ? 0 : list->header);
}

static int bin_chunk(struct list *list)
{
    const unsigned word = list->geometry.word, swap = list->geometry.swap;
    uint64_t chunk = list->entry;
    uint8_t bytes[32];
    if (misaligned(list, chunk))
        return end_list(list, PROBLEM_UNALIGNED, chunk);
    if (list->done >= list->limit)
        return end_list(list, PROBLEM_TOO_LONG, chunk);
    if (!pages_read(&list->pages, chunk, bytes, 4 * word))
        return list->pages.interrupted ? PROBLEM_PAUSED : end_list(list, PROBLEM_UNREADABLE, chunk);
    if (load_word(bytes + 3 * word, word, swap) != list->previous)
        return end_list(list, PROBLEM_BACK_LINK, chunk);
    uint64_t raw = load_word(bytes + word, word, swap);
    list->bytes += raw & ~(uint64_t) FLAGS;
    list->raw_bytes += raw;
    if (!list->done || raw < list->raw_min)
        list->raw_min = raw;
    if (raw > list->raw_max)
        list->raw_max = raw;
    list->done++;
    list->previous = chunk;
    list->entry = load_word(bytes + 2 * word, word, swap);
    return PROBLEM_NONE;
}

/* Follows up to `room` chunks; writes their addresses to `out` unless NULL. Returns how many; fewer than `room`: ended or interrupted. */
EXPORT uint64_t heapx_bin_next(struct list *list, uint64_t *out, uint64_t room)
{
    uint64_t count = 0;
    list->pages.interrupted = 0;
    if (!list->previous && bin_start(list) == PROBLEM_PAUSED)
        return 0;
    while (count < room && !list->ended) {
        if (list->entry == list->header) {
            bin_close(list);
            break;
        }
        uint64_t chunk = list->entry;
        if (bin_chunk(list) != PROBLEM_NONE)
            break;
        if (out)
            out[count] = chunk;
        count++;
    }
    return count;
}

/* `out`: ended, problem, at, count, bytes, raw_bytes, raw_min, raw_max. */
EXPORT void heapx_list_state(const struct list *list, uint64_t *out)
{
    const uint64_t state[] = {
        (uint64_t) list->ended, (uint64_t) list->problem, list->at, list->done, list->bytes, list->raw_bytes, list->raw_min, list->raw_max,
    };
    memcpy(out, state, sizeof state);
}
