/* Free lists: fastbins, thread caches (singly linked) and bins (doubly linked), each followed link by link to its end.

   No list can hold the walk up: none has more entries than its limit, all together no more than rules.most_entries, and a single list that
   comes back to itself is found by Brent's trap, an entry that stays behind after 1, 2, 4, ... steps. Bins need no trap: each bk is
   compared with the chunk before, and only one chunk has that. */
#include "chunk.h"

#include <stdlib.h>

#define STEPS_BETWEEN_CLOCKS 256u
/* Short lists are read link by link; of long ones neighbours are often neighbours in memory, and pages are kept. */
#define DIRECT_READS 32u
#define COLUMNS 8u

struct list {
    uint64_t head;              /* the first entry; of a bin the address of its header */
    uint64_t limit, count, last;
    uint64_t bytes, raw_bytes, raw_min, raw_max;
    uint64_t at;                /* the address that caused `problem` */
    uint8_t kind, problem, ended;
};

struct lists {
    struct chunk_geometry geometry;
    const struct source *source;
    struct pages pages;
    struct list *items;
    size_t count, place;
    uint64_t left;              /* entries that all lists may still have */
    int mangled, collect, is_done, no_memory;
    double deadline;
    uint64_t reads;             /* of `pages` when the clock was looked at */

    /* The list at `place`: */
    int is_open;
    uint64_t entry;             /* the next one */
    uint64_t steps, trap, lap, laps;
    struct grown path;        /* of a single list the entries up to limit + 1, in order */
    struct grown fields;      /* of a sized list their size fields */

    struct grown members;     /* chunk | SPECIAL_x, of bins chunks */
    struct grown twice;       /* chunks on more than one place */
    struct grown mapped;      /* chunks with a mapping of their own */
};

struct link {
    uint64_t next, back, field;
};

enum { LINK_READ = 1, LINK_UNREADABLE = 0, LINK_PAUSED = INTERRUPTED };     /* as read_words(); no memory: paused, too */

static int numbers_add(struct lists *lists, struct grown *numbers, uint64_t value)
{
    uint64_t *place = grown_add(numbers, sizeof *place);
    if (place)
        *place = value;
    else
        lists->no_memory = 1;
    return place != NULL;
}

static uint64_t number_at(const struct grown *numbers, uint64_t place)
{
    return ((const uint64_t *) numbers->items)[place];
}

static uint64_t word_mask(const struct lists *lists)
{
    return lists->geometry.word == 8 ? UINT64_MAX : UINT32_MAX;
}

/* From an entry to where its link stands: entries of thread caches are what malloc returned, all others are chunks. */
static uint64_t link_place(const struct lists *lists, const struct list *list, uint64_t entry)
{
    const uint64_t offset = list->kind == FAST || list->kind == BIN ? 2 * lists->geometry.word : 0;
    return (entry + offset) & word_mask(lists);
}

/* Of a chunk in a bin 4 words are read, of a sized list's entry the size field and the link, else the link alone. */
static int read_link(struct lists *lists, const struct list *list, struct link *link)
{
    const uint64_t place = link_place(lists, list, lists->entry), mask = word_mask(lists);
    uint64_t words[4];
    int got;
    memset(link, 0, sizeof *link);
    if (list->kind == BIN) {
        got = read_words(lists->source, &lists->pages, &lists->geometry, lists->entry, 4, words);
        *link = (struct link) {words[2], words[3], words[1]};
        return got;
    }
    if (list->kind == TCACHE_SIZED) {
        got = read_words(lists->source, &lists->pages, &lists->geometry, (place - lists->geometry.word) & mask, 2, words);
        link->field = words[0];
        link->next = words[1];
    } else {
        got = read_words(lists->source, &lists->pages, &lists->geometry, place, 1, &link->next);
    }
    if (lists->mangled)     /* PROTECT_PTR, REVEAL_PTR (malloc.c): always by 12 bits */
        link->next = (link->next ^ place >> 12) & mask;
    return got;
}

static void end_list(struct list *list, int problem, uint64_t at)
{
    list->problem = (uint8_t) problem;
    list->at = at;
    list->ended = 1;
}

static void count_field(struct list *list, uint64_t field)
{
    list->bytes += field & ~(uint64_t) FLAGS;
    list->raw_bytes += field;
    if (!list->count || field < list->raw_min)
        list->raw_min = field;
    if (field > list->raw_max)
        list->raw_max = field;
}

/* ---- bins ---- */

/* The first and the last chunk, by its header. */
static int read_header(struct lists *lists, const struct list *list, uint64_t *words)
{
    return read_words(lists->source, &lists->pages, &lists->geometry, list->head + 2 * lists->geometry.word, 2, words);
}

static int step_bin(struct lists *lists, struct list *list)
{
    const uint64_t chunk = lists->entry, last = list->count ? list->last : list->head;
    const int is_header = chunk == list->head;
    struct link link;
    uint64_t words[2];
    if (!is_header && link_place(lists, list, chunk) & (lists->geometry.alignment - 1)) {
        end_list(list, UNALIGNED, chunk);
        return LINK_READ;
    }
    if (!is_header && (list->count >= list->limit || !lists->left)) {
        end_list(list, TOO_LONG, chunk);
        return LINK_READ;
    }
    const int got = is_header ? read_header(lists, list, words) : read_link(lists, list, &link);
    if (got == LINK_PAUSED)
        return got;
    if (is_header) {    /* the bin is back at it, and its bk must be the last chunk */
        const int is_whole = got == LINK_READ && words[1] == last;
        end_list(list, is_whole ? 0 : BACK_LINK, is_whole ? 0 : chunk);
        return LINK_READ;
    }
    if (got == LINK_UNREADABLE || link.back != last) {
        end_list(list, got == LINK_UNREADABLE ? UNREADABLE : BACK_LINK, chunk);
        return LINK_READ;
    }
    if (lists->collect && !numbers_add(lists, &lists->members, chunk))
        return LINK_PAUSED;
    count_field(list, link.field);
    list->count++;
    list->last = chunk;
    lists->left--;
    lists->entry = link.next;
    return LINK_READ;
}

/* ---- single lists ---- */

/* An entry that is aligned and can be read stands behind the path: where does the list come back to? `period`: entries in the cycle. */
static void find_cycle(struct lists *lists, struct list *list, uint64_t period)
{
    const uint64_t *path = lists->path.items, count = lists->path.count;
    for (uint64_t start = 0; period < count && start < count - period; start++) {
        if (path[start] == path[start + period]) {
            list->count = start + period;
            end_list(list, CYCLE, path[start]);
            return;
        }
    }
    end_list(list, TOO_LONG, path[list->limit]);
}

/* Beyond the limit the list is followed only to learn whether it came back before. */
static int is_beyond(const struct lists *lists, const struct list *list)
{
    return lists->steps > list->limit;
}

static void end_single(struct lists *lists, struct list *list, int problem, uint64_t at)
{
    if (is_beyond(lists, list))
        end_list(list, TOO_LONG, number_at(&lists->path, list->limit));
    else
        end_list(list, problem, at);
}

/* The entry behind the last one that counts, as the next of the path; 0 if the list ends here. */
static int enter_single(struct lists *lists, struct list *list)
{
    const uint64_t entry = lists->entry;
    if (!entry) {
        end_single(lists, list, 0, 0);
    } else if (lists->steps && entry == lists->trap) {
        if (!is_beyond(lists, list) && !numbers_add(lists, &lists->path, entry))
            return 0;
        find_cycle(lists, list, lists->lap);
    } else if (link_place(lists, list, entry) & (lists->geometry.alignment - 1)) {
        end_single(lists, list, UNALIGNED, entry);
    } else if (!lists->left || lists->steps > 4 * list->limit) {
        if (!is_beyond(lists, list) && !numbers_add(lists, &lists->path, entry))
            return 0;
        end_list(list, TOO_LONG, number_at(&lists->path, list->count < list->limit ? list->count : list->limit));
    }
    return !list->ended;
}

static int step_single(struct lists *lists, struct list *list)
{
    struct link link;
    if (!enter_single(lists, list))
        return lists->no_memory ? LINK_PAUSED : LINK_READ;
    const int got = read_link(lists, list, &link);
    if (got == LINK_PAUSED)
        return got;
    if (got == LINK_UNREADABLE) {
        end_single(lists, list, lists->steps == list->limit ? TOO_LONG : UNREADABLE, lists->entry);
        return LINK_READ;
    }
    if (!is_beyond(lists, list)) {
        if (!numbers_add(lists, &lists->path, lists->entry))
            return LINK_PAUSED;
        if (list->kind == TCACHE_SIZED && !numbers_add(lists, &lists->fields, link.field))
            return LINK_PAUSED;
        if (list->count < list->limit) {
            if (list->kind == TCACHE_SIZED)
                count_field(list, link.field);
            list->count++;
            list->last = lists->entry;
            lists->left--;
        }
    }
    if (!lists->steps || lists->lap == lists->laps) {       /* the trap is set to this entry after 1, 2, 4, ... steps */
        lists->trap = lists->entry;
        lists->laps = lists->steps ? 2 * lists->laps : 1;
        lists->lap = 0;
    }
    lists->lap++;
    lists->steps++;
    lists->entry = link.next;
    return LINK_READ;
}

/* Keeps the members of a single list that has ended; of one that comes back to itself fewer count than were met. */
static int keep_path(struct lists *lists, struct list *list)
{
    const uint64_t header = 2 * lists->geometry.word, count = list->count;
    list->count = list->bytes = list->raw_bytes = list->raw_max = 0;
    list->last = count ? number_at(&lists->path, count - 1) : 0;
    for (; list->count < count; list->count++) {
        const uint64_t entry = number_at(&lists->path, list->count);
        uint64_t field = 0;
        if (list->kind == TCACHE_SIZED) {
            field = number_at(&lists->fields, list->count);
            count_field(list, field);
        }
        if (!lists->collect)
            continue;
        const int is_mapped = (field & FLAG_MMAPPED) != 0;
        const uint64_t chunk = list->kind == FAST ? entry | SPECIAL_FAST : entry - header;
        const uint64_t tag = is_mapped || list->kind == FAST ? 0 : SPECIAL_TCACHE;
        if (!numbers_add(lists, is_mapped ? &lists->mapped : &lists->members, chunk | tag))
            return 0;
    }
    return 1;
}

/* ---- all lists ---- */

/* One step along the list at `place`, and on to the next where it ends. 0: the same step must be tried again. */
static int step(struct lists *lists)
{
    struct list *list = &lists->items[lists->place];
    int got = LINK_READ;
    uint64_t words[2] = {list->head};
    if (lists->is_open) {
        got = list->kind == BIN ? step_bin(lists, list) : step_single(lists, list);
    } else {
        lists->steps = lists->lap = lists->laps = 0;
        lists->path.count = lists->fields.count = 0;
        got = list->kind == BIN ? read_header(lists, list, words) : LINK_READ;
        lists->entry = words[0];
        if (got == LINK_UNREADABLE)
            end_list(list, UNREADABLE, list->head);
    }
    if (got == LINK_PAUSED)
        return 0;
    lists->is_open = !list->ended;
    if (list->ended) {
        if (list->kind != BIN && !keep_path(lists, list))
            return 0;
        lists->place++;
    }
    return 1;
}

/* 1: all lists have ended. */
static int follow_all(struct lists *lists)
{
    for (unsigned steps = 1; lists->place < lists->count; steps++) {
        if (steps % STEPS_BETWEEN_CLOCKS == 0 || lists->pages.reads != lists->reads) {
            lists->reads = lists->pages.reads;
            if (clock_now() > lists->deadline)
                return 0;
        }
        if (!step(lists))
            return 0;
    }
    return 1;
}

/* The members in order, each chunk once; those on more than one place are told. */
static void sort_members(struct lists *lists)
{
    uint64_t *values = lists->members.items, kept = 0;
    lists->no_memory |= lists->members.count && !heapx_sort(values, lists->members.count);
    for (size_t i = 0; i < lists->members.count && !lists->no_memory; i++) {
        const uint64_t chunk = values[i] & ~(uint64_t) FLAGS;
        if (!kept || (values[kept - 1] & ~(uint64_t) FLAGS) != chunk)
            values[kept++] = values[i];
        else if (!lists->twice.count || number_at(&lists->twice, lists->twice.count - 1) != chunk)
            numbers_add(lists, &lists->twice, chunk);
    }
    lists->members.count = kept;
    lists->is_done = 1;
}

void heapx_lists_free(struct lists *lists)
{
    if (!lists)
        return;
    pages_close(&lists->pages);
    free(lists->path.items);
    free(lists->fields.items);
    free(lists->members.items);
    free(lists->twice.items);
    free(lists->mapped.items);
    free(lists->items);
    free(lists);
}

/* `columns`: the heads of all lists, then their kinds, then their limits. `also`: what shall stand among the members. */
struct lists *heapx_lists_new(const struct source *source, const struct geometry *geometry, const uint64_t *columns, uint64_t count,
                              const uint64_t *also, uint64_t also_count, const struct rules *rules)
{
    struct lists *lists = calloc(1, sizeof *lists);
    if (!lists)
        return NULL;
    geometry_set(&lists->geometry, geometry);
    lists->source = source;
    source_map(source);
    pages_open(&lists->pages, source, DIRECT_READS);
    lists->count = (size_t) count;
    lists->mangled = rules->mangled != 0;
    lists->collect = rules->collect != 0;
    lists->left = rules->most_entries;
    lists->items = calloc(lists->count + 1, sizeof *lists->items);
    lists->no_memory = !lists->items;
    for (size_t i = 0; i < lists->count && lists->items; i++)
        lists->items[i] = (struct list) {.head = columns[i], .kind = (uint8_t) columns[count + i], .limit = columns[2 * count + i]};
    for (uint64_t i = 0; i < also_count && !lists->no_memory; i++)
        numbers_add(lists, &lists->members, also[i]);
    if (lists->no_memory) {
        heapx_lists_free(lists);
        return NULL;
    }
    return lists;
}

/* Works for about `seconds`: 1 if there is more to do, 0 if not, INTERRUPTED, or NO_MEMORY. */
int64_t heapx_lists_slice(struct lists *lists, double seconds)
{
    lists->deadline = clock_now() + seconds;
    lists->pages.interrupted = 0;
    if (!lists->is_done && follow_all(lists))
        sort_members(lists);
    if (lists->no_memory)
        return NO_MEMORY;
    return lists->pages.interrupted ? INTERRUPTED : !lists->is_done;
}

/* `out`: for each list, one column after the other: count, problem, at, last, bytes, raw_bytes, raw_min, raw_max. The last four only
   where sizes were read: of bins and sized lists. */
void heapx_lists_result(const struct lists *lists, uint64_t *out)
{
    const size_t n = lists->count;
    for (size_t i = 0; i < n; i++) {
        const struct list *list = &lists->items[i];
        const uint64_t row[COLUMNS] = {list->count, list->ended ? list->problem : CUT, list->at, list->last, list->bytes, list->raw_bytes,
            list->raw_min, list->raw_max};
        for (unsigned column = 0; column < COLUMNS; column++)
            out[column * n + i] = row[column];
    }
}

/* How many numbers there are; they are at `values` as long as the job is. LISTS_MEMBERS: sorted, none before all lists have ended. */
uint64_t heapx_lists_numbers(const struct lists *lists, int which, const uint64_t **values)
{
    const struct grown *numbers = which == LISTS_MEMBERS ? &lists->members : which == LISTS_TWICE ? &lists->twice : &lists->mapped;
    *values = numbers->items;
    return which == LISTS_MEMBERS && !lists->is_done ? 0 : numbers->count;
}
