/* What malloc would trip over: the checks of single chunks, in one pass over all regions, and those of the members of lists.

   Members of bins come as sorted addresses, like the specials: a chunk that is free by its successor must be among them, and no other
   chunk may. */
#include "chunk.h"

#include <stdlib.h>

#define CHECK_BLOCK (256u << 10)
#define BETWEEN_CLOCKS 1024u

/* How often each rule is broken, and the first MOST_ROWS places of each. */
struct findings {
    uint64_t counts[BROKEN_RULES];
    struct broken *rows;
    size_t row_count;
};

static void add_finding(struct findings *findings, struct broken row)
{
    if (findings->counts[row.rule]++ < MOST_ROWS || row.rule == BROKEN_STOP)
        findings->rows[findings->row_count++] = row;
}

/* Writes as many rows as there is room for. Returns how many there are. */
static uint64_t copy_findings(const struct findings *findings, uint64_t room, struct broken *rows)
{
    if (room)
        memcpy(rows, findings->rows, (size_t) (room < findings->row_count ? room : findings->row_count) * sizeof *rows);
    return findings->row_count;
}

/* ---- chunks ---- */

struct checker {
    struct chunk_geometry geometry;
    const struct source *source;
    const struct checked *regions;              /* the caller's, and so are the next two */
    const uint64_t *specials, *members;
    size_t region_count, special_count, member_count;
    size_t region, member, astray;
    int open, before;               /* before: STATUS_ of the cursor's previous chunk */
    uint64_t flags, reads;
    struct cursor cursor;
    struct window window;
    struct findings found;
    uint8_t bytes[CHECK_BLOCK];
};

static void tell(struct checker *checker, unsigned rule, uint64_t address, uint64_t value)
{
    add_finding(&checker->found, (struct broken) {rule, address, value, checker->cursor.previous, (uint64_t) checker->before});
}

static void open_region(struct checker *checker)
{
    const struct region *region = &checker->regions[checker->region].region;
    cursor_open(&checker->cursor, &checker->geometry, region, checker->specials, checker->special_count, region->begin);
    window_open(&checker->window, checker->source, checker->bytes, CHECK_BLOCK, region->begin, region->end);
    checker->member = specials_from(checker->members, checker->member_count, region->begin);
    checker->astray = checker->cursor.special;
    checker->flags = checker->regions[checker->region].flags;
    checker->before = STATUS_USED;
    checker->open = 1;
    checker->reads = 0;
}

static uint64_t next_member(const struct checker *checker)
{
    return checker->member < checker->member_count ? checker->members[checker->member] : UINT64_MAX;
}

/* Entries of lists that lie below `address` and were met on no boundary. */
static void pass_astray(struct checker *checker, uint64_t address)
{
    const struct cursor *cursor = &checker->cursor;
    if (checker->astray < cursor->special)
        checker->astray = cursor->special;
    while (checker->astray < cursor->specials_end && (checker->specials[checker->astray] & ~(uint64_t) FLAGS) < address)
        tell(checker, BROKEN_LISTED_ASTRAY, checker->specials[checker->astray++] & ~(uint64_t) FLAGS, 0);
    while (next_member(checker) < address)
        tell(checker, BROKEN_BINNED_ASTRAY, checker->members[checker->member++], 0);
}

static void judge(struct checker *checker, const struct chunk *chunk, int is_listed)
{
    const uint64_t at = chunk->address, field = chunk->field;
    const int is_member = next_member(checker) == at;
    checker->member += is_member;
    if (!(field & FLAG_PREV_INUSE) && !chunk->previous && (checker->flags & REGION_FIRST))
        tell(checker, BROKEN_FIRST, at, field);
    if (chunk->status == STATUS_FREE) {
        if (chunk->repeated_size != chunk->size)
            tell(checker, BROKEN_PREV_SIZE, at, chunk->repeated_size);
        if (!(field & FLAG_PREV_INUSE) && chunk->previous)
            tell(checker, BROKEN_FREE_NEIGHBOURS, at, chunk->previous);
        if (field & FLAG_NON_MAIN)
            tell(checker, BROKEN_FREE_FLAGS, at, field);
        if (is_listed)
            tell(checker, BROKEN_LISTED_FREE, at, chunk->size);
        else if (!is_member && (checker->flags & REGION_BINS_KNOWN))
            tell(checker, BROKEN_NOT_BINNED, at, chunk->size);
        return;
    }
    if (is_member)
        tell(checker, BROKEN_BINNED_USED, at, field);
    if (chunk->status <= STATUS_TCACHE_STRUCT && !(field & FLAG_NON_MAIN) != !!(checker->flags & REGION_MAIN))
        tell(checker, BROKEN_NON_MAIN, at, field);
}

/* One more chunk, or the end of the region. STEP_CHUNK, STEP_PAUSED, or a STOP_. */
static int step(struct checker *checker)
{
    struct cursor *cursor = &checker->cursor;
    struct chunk chunk;
    uint64_t first;
    const uint64_t previous = cursor->previous, met = cursor->specials_met;
    const int stop = cursor_step(cursor, &checker->window, &chunk, &first);
    if (stop == STEP_PAUSED)
        return stop;
    if (stop == STEP_CHUNK) {
        cursor->previous = previous;    /* while it is judged, the chunk before it is the suspect */
        judge(checker, &chunk, cursor->specials_met != met);
        cursor->previous = chunk.address;
        checker->before = chunk.status;
        pass_astray(checker, cursor->at);
        return STEP_CHUNK;
    }
    if (first) {
        cursor_enter(cursor, first);
        checker->before = STATUS_USED;
        return STEP_CHUNK;
    }
    tell(checker, BROKEN_STOP, cursor->at, (uint64_t) stop);
    return stop;
}

void heapx_check_free(struct checker *checker)
{
    if (checker)
        free(checker->found.rows);
    free(checker);
}

/* `members`: chunks in bins, sorted. They, the regions and the specials stay the caller's. NULL: no memory. */
struct checker *heapx_check_new(const struct source *source, const struct geometry *geometry, const struct checked *regions,
                                uint64_t region_count, const uint64_t *specials, uint64_t special_count, const uint64_t *members,
                                uint64_t member_count)
{
    struct checker *checker = calloc(1, sizeof *checker);
    if (!checker || !(checker->found.rows = calloc(BROKEN_RULES * MOST_ROWS + (size_t) region_count, sizeof *checker->found.rows))) {
        free(checker);
        return NULL;
    }
    geometry_set(&checker->geometry, geometry);
    checker->source = source;
    checker->regions = regions;
    checker->region_count = (size_t) region_count;
    checker->specials = specials;
    checker->special_count = (size_t) special_count;
    checker->members = members;
    checker->member_count = (size_t) member_count;
    return checker;
}

/* Works for about so many seconds. 0: all is done; 1: not yet; INTERRUPTED. */
int64_t heapx_check_slice(struct checker *checker, double seconds)
{
    const double deadline = clock_now() + seconds;
    checker->window.interrupted = 0;
    while (checker->region < checker->region_count) {
        if (!checker->open)
            open_region(checker);
        if (checker->window.reads != checker->reads) {
            checker->reads = checker->window.reads;
            if (clock_now() > deadline)
                return 1;
        }
        const int stop = step(checker);
        if (stop == STEP_PAUSED)
            return INTERRUPTED;
        if (stop != STEP_CHUNK) {
            checker->open = 0;
            checker->region++;
        }
    }
    return 0;
}

/* Writes how many there are of each rule, and as many struct broken as there is room for. Returns how many there are. */
uint64_t heapx_check_result(const struct checker *checker, uint64_t room, uint64_t *counts, struct broken *rows)
{
    memcpy(counts, checker->found.counts, sizeof checker->found.counts);
    return copy_findings(&checker->found, room, rows);
}

/* ---- the members of lists that are known to end, one after the other: what their own words say beyond the link ---- */

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
    struct findings found;
    int open;
};

static void tell_member(struct members *members, unsigned rule, uint64_t chunk, uint64_t value)
{
    add_finding(&members->found, (struct broken) {rule, chunk, value, members->list, 0});
}

static int read_member(struct members *members, uint64_t address, unsigned count, uint64_t *words)
{
    return read_words(members->source, &members->pages, &members->geometry, address, count, words);
}

static void check_size(struct members *members, const struct member_list *list, uint64_t chunk, uint64_t size)
{
    if (size < list->min_size || size > list->max_size)
        tell_member(members, MEMBER_SIZE, chunk, size);
}

/* A member of a thread cache or a fastbin; 0 where it ends. */
static int step_single(struct members *members, const struct member_list *list)
{
    const unsigned word = members->geometry.word;
    const uint64_t mask = word == 8 ? UINT64_MAX : UINT32_MAX;
    const uint64_t chunk = list->kind == FAST ? members->entry : (members->entry - 2 * word) & mask, field = (chunk + 2 * word) & mask;
    uint64_t words[3];
    const int got = members->left && members->entry ? read_member(members, (chunk + word) & mask, 3, words) : 0;
    if (got != 1)
        return got;
    members->left--;
    check_size(members, list, chunk, words[0] & ~(uint64_t) FLAGS);
    if (list->key && words[2] != list->key)
        tell_member(members, MEMBER_KEY, chunk, words[2]);
    members->entry = (members->mangled ? words[1] ^ field >> 12 : words[1]) & mask;
    return 1;
}

/* A member of a large bin: largest first along fd, and the first of each size linked with those of the next sizes (malloc.c). */
static void check_order(struct members *members, uint64_t chunk, uint64_t size, const uint64_t *words)
{
    if (members->first && size > members->size)
        tell_member(members, MEMBER_ORDER, chunk, members->size);
    if (members->first && size == members->size)
        return;
    if (!members->first) {
        members->first = chunk;
        members->first_back = words[5];
    } else if (members->last_next != chunk || words[5] != members->last) {
        tell_member(members, MEMBER_NEXTSIZE, chunk, members->last);
    }
    members->last = chunk;
    members->last_next = words[4];
}

/* The bin is back at its header: the links that close the ring. */
static int close_bin(struct members *members, const struct member_list *list)
{
    uint64_t back;
    const int got = read_member(members, list->head + 3 * members->geometry.word, 1, &back);
    if (got == INTERRUPTED)
        return got;
    if (got != 1 || back != members->before)
        tell_member(members, MEMBER_LINK, list->head, got == 1 ? back : 0);
    else if (list->is_sorted && members->first && (members->last_next != members->first || members->first_back != members->last))
        tell_member(members, MEMBER_NEXTSIZE, members->first, members->last);
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
    const int got = members->left ? read_member(members, chunk, count, words) : 0;
    if (got == INTERRUPTED)
        return got;
    if (got != 1 || words[3] != members->before) {
        tell_member(members, MEMBER_LINK, chunk, members->before);
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

/* The first entry of the next list. 1, or as read_words. */
static int open_list(struct members *members, const struct member_list *list)
{
    uint64_t words[1] = {list->head};
    const uint64_t place = list->head + 2 * members->geometry.word;
    const int got = list->kind == BIN ? read_member(members, place, 1, words) : 1;
    members->entry = got == 1 ? words[0] : 0;
    members->left = list->count;
    members->before = list->head;
    members->first = members->last = members->last_next = members->first_back = members->size = 0;
    if (!got)
        tell_member(members, MEMBER_LINK, list->head, 0);
    return got;
}

void heapx_members_free(struct members *members)
{
    if (members) {
        pages_close(&members->pages);
        free(members->found.rows);
    }
    free(members);
}

/* `lists`: struct member_list of each, the caller's. NULL: no memory. */
struct members *heapx_members_new(const struct source *source, const struct geometry *geometry, const struct member_list *lists,
                                  uint64_t count, int mangled)
{
    struct members *members = calloc(1, sizeof *members);
    if (!members || !(members->found.rows = calloc(MEMBER_RULES * MOST_ROWS, sizeof *members->found.rows))) {
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
            got = list->kind == BIN ? step_bin(members, list) : step_single(members, list);
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
    memcpy(counts, members->found.counts, MEMBER_RULES * sizeof *counts);
    counts[MEMBER_RULES] = members->binned;
    counts[MEMBER_RULES + 1] = members->binned_sum;
    return copy_findings(&members->found, room, rows);
}
