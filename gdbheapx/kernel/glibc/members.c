/* The members of lists that are known to end, one after the other: what their own words say beyond the link. */
#include "chunk.h"

#include <stdlib.h>

#define BETWEEN_CLOCKS 1024u

struct members {
    struct chunk_geometry geometry;
    const struct source *source;
    struct pages pages;                 /* of a process: neighbours in memory often follow each other */
    const struct member_list *lists;    /* the caller's */
    size_t list_count, list;
    int mangled;
    uint64_t entry, left, steps, size;  /* entry: of the list that is open; size: of the member before it */
    uint64_t before;                    /* the member before it, of a bin */
    uint64_t binned, binned_sum;        /* members of bins, and the sum of their addresses */
    uint64_t first, first_back, last, last_next;    /* of a sorted bin: the firsts of each size, and what they point to */
    uint64_t counts[MEMBER_RULES];
    struct broken *rows;
    size_t row_count;
    int open;
};

static void tell(struct members *members, unsigned rule, uint64_t chunk, uint64_t value)
{
    if (members->counts[rule]++ >= MOST_ROWS)
        return;
    const struct broken row = {rule, chunk, value, members->list, 0};
    members->rows[members->row_count++] = row;
}

static void check_size(struct members *members, const struct member_list *list, uint64_t chunk, uint64_t size)
{
    if (size < list->min_size || size > list->max_size)
        tell(members, MEMBER_SIZE, chunk, size);
}

/* A member of a thread cache or a fastbin. */
static int step_single(struct members *members, const struct member_list *list)
{
    const unsigned word = members->geometry.word;
    const uint64_t mask = word == 8 ? UINT64_MAX : UINT32_MAX;
    const uint64_t chunk = list->kind == FAST ? members->entry : (members->entry - 2 * word) & mask, field = (chunk + 2 * word) & mask;
    uint64_t words[3];
    const int got = read_words(members->source, &members->pages, &members->geometry, (chunk + word) & mask, 3, words);
    if (got != 1)
        return got;
    check_size(members, list, chunk, words[0] & ~(uint64_t) FLAGS);
    if (list->key && words[2] != list->key)
        tell(members, MEMBER_KEY, chunk, words[2]);
    members->entry = (members->mangled ? words[1] ^ field >> 12 : words[1]) & mask;
    return 1;
}

/* A member of a large bin: largest first along fd, and the first of each size linked with those of the next sizes (malloc.c). */
static void check_order(struct members *members, uint64_t chunk, uint64_t size, const uint64_t *words)
{
    const int is_first = !members->first || size != members->size;
    if (members->first && size > members->size)
        tell(members, MEMBER_ORDER, chunk, members->size);
    if (!is_first)
        return;
    if (!members->first) {
        members->first = chunk;
        members->first_back = words[5];
    } else if (members->last_next != chunk || words[5] != members->last) {
        tell(members, MEMBER_NEXTSIZE, chunk, members->last);
    }
    members->last = chunk;
    members->last_next = words[4];
}

/* The bin is back at its header: the links that close the ring. */
static int close_bin(struct members *members, const struct member_list *list)
{
    uint64_t back;
    const int got = read_words(members->source, &members->pages, &members->geometry, list->head + 3 * members->geometry.word, 1, &back);
    if (got == INTERRUPTED)
        return got;
    if (got != 1 || back != members->before)
        tell(members, MEMBER_LINK, list->head, got == 1 ? back : 0);
    else if (list->is_sorted && members->first && (members->last_next != members->first || members->first_back != members->last))
        tell(members, MEMBER_NEXTSIZE, members->first, members->last);
    return 0;
}

/* A member of a bin; 0 where it ends, for whatever reason. */
static int step_bin(struct members *members, const struct member_list *list)
{
    uint64_t words[6];
    const uint64_t chunk = members->entry;
    if (chunk == list->head)
        return close_bin(members, list);
    const unsigned count = list->is_sorted ? 6 : 4;
    const int got = members->left ? read_words(members->source, &members->pages, &members->geometry, chunk, count, words) : 0;
    if (got == INTERRUPTED)
        return got;
    if (got != 1 || words[3] != members->before) {
        tell(members, MEMBER_LINK, chunk, members->before);
        return 0;
    }
    const uint64_t size = words[1] & ~(uint64_t) FLAGS;
    check_size(members, list, chunk, size);
    if (list->is_sorted)
        check_order(members, chunk, size, words);
    members->binned++;
    members->binned_sum += chunk;
    members->left--;
    members->size = size;
    members->before = chunk;
    members->entry = words[2];
    return 1;
}

/* A member of another list; 0 where it ends. */
static int step_list(struct members *members, const struct member_list *list)
{
    if (!members->left || !members->entry)
        return 0;
    const int got = step_single(members, list);
    members->left -= got == 1;
    return got;
}

/* The first entry of the next list. 1, or as read_words. */
static int open_list(struct members *members, const struct member_list *list)
{
    uint64_t words[1] = {list->head};
    const uint64_t place = list->head + 2 * members->geometry.word;
    const int got = list->kind == BIN ? read_words(members->source, &members->pages, &members->geometry, place, 1, words) : 1;
    members->entry = got == 1 ? words[0] : 0;
    members->left = list->count;
    members->before = list->head;
    members->first = members->last = members->last_next = members->first_back = members->size = 0;
    if (!got)
        tell(members, MEMBER_LINK, list->head, 0);
    return got;
}

void heapx_members_free(struct members *members)
{
    if (members) {
        pages_close(&members->pages);
        free(members->rows);
    }
    free(members);
}

/* `lists`: struct member_list of each, the caller's. NULL: no memory. */
struct members *heapx_members_new(const struct source *source, const struct geometry *geometry, const struct member_list *lists,
                                  uint64_t count, int mangled)
{
    struct members *members = calloc(1, sizeof *members);
    if (!members)
        return NULL;
    members->rows = calloc(MEMBER_RULES * MOST_ROWS, sizeof *members->rows);
    if (!members->rows) {
        free(members);
        return NULL;
    }
    geometry_set(&members->geometry, geometry);
    members->source = source;
    source_map(source);
    pages_open(&members->pages, source, 0);
    members->lists = lists;
    members->list_count = (size_t) count;
    members->mangled = mangled;
    return members;
}

/* As heapx_check_slice. */
int64_t heapx_members_slice(struct members *members, double seconds)
{
    const double deadline = clock_now() + seconds;
    while (members->list < members->list_count) {
        const struct member_list *list = members->lists + members->list;
        if (members->steps++ % BETWEEN_CLOCKS == BETWEEN_CLOCKS - 1 && clock_now() > deadline)
            return 1;
        int got = members->open ? 1 : open_list(members, list);
        members->open = got == 1;
        if (got == 1)
            got = list->kind == BIN ? step_bin(members, list) : step_list(members, list);
        if (got == INTERRUPTED)
            return got;
        if (!got) {
            members->open = 0;
            members->list++;
        }
    }
    return 0;
}

/* As heapx_check_result; the list's number stands in the place of `previous`. Behind the counts: members of bins, and the sum of their
   addresses. */
uint64_t heapx_members_result(const struct members *members, uint64_t room, uint64_t *counts, struct broken *rows)
{
    memcpy(counts, members->counts, sizeof members->counts);
    counts[MEMBER_RULES] = members->binned;
    counts[MEMBER_RULES + 1] = members->binned_sum;
    if (room)
        memcpy(rows, members->rows, (size_t) (room < members->row_count ? room : members->row_count) * sizeof *rows);
    return members->row_count;
}
