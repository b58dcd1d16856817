/* One list after the other, link by link. What stands here is what a list is; all else is speed. */
#include "links.h"

#define STEPS_WITHOUT_SEGMENTS 256u
#define STEPS_BETWEEN_CLOCKS 256u

void end_list(struct list *list, int problem, uint64_t at)
{
    list->problem = (uint8_t) problem;
    list->at = at;
    list->state = LIST_ENDED;
}

int keep(struct lists *lists, const struct list *list, uint64_t entry, const struct link *link)
{
    const unsigned header = 2 * lists->geometry.word;
    lists->plain_entries++;
    if (!lists->collect)
        return 1;
    if (link->node != NO_NODE) {
        node_mark(store_node(&lists->store, link->node), list->kind);
        return 1;
    }
    if (list->kind == TCACHE_SIZED && (link->raw & FLAG_MMAPPED))
        return entries_add(&lists->mapped, entry - header);
    if (list->kind == BIN)
        return entries_add(&lists->entries, entry);
    return entries_add(&lists->entries, list->kind == FAST ? entry | SPECIAL_FAST : (entry - header) | SPECIAL_TCACHE);
}

/* Goes over a whole segment; 0 if there is none here that the list may take. */
static int take_segment(struct lists *lists, struct list *list, uint32_t node)
{
    struct segments *segments = &lists->segments[way_of(list->kind)];
    const uint32_t group = node >> GROUP_SHIFT, number = (uint32_t) (list - lists->items) + 1;
    if (node == NO_NODE || group >= segments->groups || !is_group_start(node))
        return 0;
    struct segment *segment = &segments->of_group[group];
    if (!segment->tally.count || segment->tally.count > list->limit - list->tally.count)
        return 0;
    if (segment->used_by == number) {   /* the list came back */
        endless_begin(list);
        return 1;
    }
    segment->used_by = number;
    tally_add(&list->tally, &segment->tally);
    list->entry = segment->next;
    return 1;
}

/* Moves the trap on, or finds that the list came back to it. */
static void set_trap(struct list *list)
{
    if (list->entry == list->trap) {
        endless_begin(list);
    } else if (++list->lap >= list->laps) {
        list->trap = list->entry;
        list->laps = list->laps ? 2 * list->laps : 1;
        list->lap = 0;
    }
}

/* A bin's header acts as a chunk: its fd is the first member, its bk must name the last one. */
static int read_header(struct lists *lists, struct list *list)
{
    const struct chunk_geometry *geometry = &lists->geometry;
    uint8_t bytes[16];
    if (!pages_read(&lists->pages, list->head + 2 * geometry->word, bytes, 2 * geometry->word))
        return lists->pages.interrupted ? LOAD_PAUSED : LOAD_UNREADABLE;
    if (!list->begun) {
        list->entry = list->first = load_word(bytes, geometry->word, geometry->swap);
        list->begun = 1;
        return LOAD_DONE;
    }
    const uint64_t back = load_word(bytes + geometry->word, geometry->word, geometry->swap);
    int good = back == (list->tally.count ? list->tally.last : list->head);
    end_list(list, good ? 0 : BACK_LINK, good ? 0 : list->head);
    return LOAD_DONE;
}

/* The next entry of the list, or its end. */
static int step(struct lists *lists, struct list *list)
{
    const struct chunk_geometry *geometry = &lists->geometry;
    const uint64_t entry = list->entry, key = (entry + link_offset(geometry, list->kind)) & word_mask(geometry);
    struct link link;
    if (list->kind == BIN ? entry == list->head : !entry) {
        if (list->kind == BIN)
            return read_header(lists, list);
        end_list(list, 0, 0);
        return LOAD_DONE;
    }
    if (key & (geometry->alignment - 1)) {
        end_list(list, UNALIGNED, entry);
        return LOAD_DONE;
    }
    if (list->tally.count >= list->limit) {
        end_list(list, TOO_LONG, entry);
        if (list->kind != BIN) {   /* it may have come back long ago */
            list->state = LIST_RUNNING;
            endless_begin(list);
        }
        return LOAD_DONE;
    }
    int loaded = load(lists, list, entry, &link);
    if (loaded != LOAD_DONE)
        return loaded;
    if (list->kind == BIN && link.back != (list->tally.count ? list->tally.last : list->head)) {
        end_list(list, BACK_LINK, entry);
        return LOAD_DONE;
    }
    if (take_segment(lists, list, link.node))
        return LOAD_DONE;
    if (!keep(lists, list, entry, &link)) {
        lists->no_memory = 1;
        return LOAD_PAUSED;
    }
    tally_one(&list->tally, entry, link.raw);
    list->entry = link.next;
    if (list->kind != BIN)
        set_trap(list);
    return LOAD_DONE;
}

/* As step() again and again, as long as a single list stays within a page that is there. 0: no memory. */
static int steps_in_page(struct lists *lists, struct list *list)
{
    const struct chunk_geometry *geometry = &lists->geometry;
    const unsigned word = geometry->word, swap = geometry->swap, keeps = lists->collect != 0;
    const uint64_t mask = word_mask(geometry), offset = link_offset(geometry, list->kind);
    /* from an entry to what is kept */
    const uint64_t tag = list->kind == FAST ? SPECIAL_FAST : SPECIAL_TCACHE - (uint64_t) 2 * word;
    uint64_t begin, end, entry = list->entry;
    const uint8_t *bytes = pages_peek(&lists->pages, (entry + offset) & mask, &begin, &end);
    if (!bytes || (lists->has_store && store_bucket(&lists->store, entry + offset)))
        return 1;
    const uint64_t before = list->tally.count;
    while (entry && list->tally.count < list->limit) {
        const uint64_t key = (entry + offset) & mask;
        if (key - begin >= CACHE_PAGE || key + word > end || (key & (geometry->alignment - 1)))
            break;
        if (keeps && !entries_add(&lists->entries, entry + tag))
            return 0;
        list->tally.count++;
        list->tally.last = entry;
        entry = load_word(bytes + (key - begin), word, swap);
        if (lists->mangled)
            entry = (entry ^ key >> 12) & mask;
        list->entry = entry;
        set_trap(list);
        if (list->exact)
            break;
    }
    lists->plain_entries += list->tally.count - before;
    return 1;
}

static int has_all_segments(const struct lists *lists, int way)
{
    return lists->segments[way].scans == lists->scans;
}

int follow(struct lists *lists, struct list *list)
{
    uint64_t reads = lists->pages.reads, before = lists->store_steps;
    const int is_plain = list->kind == TCACHE || list->kind == FAST;
    for (unsigned steps = 1; list->state == LIST_RUNNING; steps++) {
        if (is_plain && !list->exact && !steps_in_page(lists, list)) {
            lists->no_memory = 1;
            return FOLLOW_PAUSED;
        }
        if ((steps % STEPS_BETWEEN_CLOCKS == 0 || lists->pages.reads != reads) && clock_now() > lists->deadline)
            return FOLLOW_TIME;
        reads = lists->pages.reads;
        int loaded = list->exact ? endless_step(lists, list) : list->begun ? step(lists, list) : read_header(lists, list);
        if (loaded == LOAD_PAUSED)
            return FOLLOW_PAUSED;
        if (loaded == LOAD_UNREADABLE)
            end_list(list, UNREADABLE, list->begun ? list->entry : list->head);
        else if (loaded == LOAD_WAIT)
            list->state = LIST_WAITS_FOR_SCAN;
        else if (!list->exact && lists->store_steps - before > STEPS_WITHOUT_SEGMENTS && !has_all_segments(lists, way_of(list->kind))
                 && list->state == LIST_RUNNING)
            list->state = LIST_WAITS_FOR_SEGMENTS;
    }
    return FOLLOW_DONE;
}
