/* musl's mallocng: the areas of metas, the groups that these describe, and the slots of each as runs (src/malloc/mallocng/meta.h). Of a
   group itself nothing is read here: whether it leads back to its meta is asked with its slots. */
#include "blocks/slots.h"
#include "gdbheapx_musl.h"

#include <stdlib.h>

#define MOST_DEPTH 64u

static const uint16_t UNITS[MUSL_CLASSES] = {
    1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 15, 18, 20, 25, 31, 36, 42, 50, 63, 72, 84, 102, 127, 146, 170, 204, 255, 292, 340, 409, 511, 584,
    682, 818, 1023, 1169, 1364, 1637, 2047, 2340, 2730, 3276, 4095, 4680, 5460, 6552, 8191,
};

struct met {
    struct musl_group group;
    uint64_t free_mask;
};

enum { OF_AREAS, OF_RUNS, OF_NOTHING };

struct groups_job {
    const struct source *source;
    struct musl_layout layout;
    unsigned swap, step;
    const uint64_t *memory;     /* begin and end of each range that the process has, sorted; the caller's */
    uint64_t memory_count;
    int with_rows;
    struct page_entries near;   /* areas lie side by side */
    uint64_t area;              /* the next one */
    struct address_set seen;    /* areas */
    struct grown areas, groups, runs, held, alone;
    struct musl_class classes[HEAD_LABEL];
    struct musl_held sums;
    uint64_t problem_count;
    struct musl_problem problems[MOST_MUSL_PROBLEMS];
};

static void tell(struct groups_job *job, int code, uint64_t address, uint64_t meta)
{
    if (job->problem_count < MOST_MUSL_PROBLEMS)
        job->problems[job->problem_count] = (struct musl_problem) {(uint64_t) code, address, meta};
    job->problem_count++;
}

/* What the numbers of a meta say of its group; its masks. */
static int measure(struct musl_group *group, uint64_t free_mask, int are_both, uint64_t pages, uint64_t page_bytes)
{
    const uint64_t mapped = pages * AREA_BYTES, units = group->size_class < MUSL_CLASSES ? UNITS[group->size_class] : 0;
    group->place = pages ? PLACE_MAPPED : group->is_freeable ? PLACE_NESTED : PLACE_DONATED;
    group->slot_bytes = pages && group->slots == 1 ? mapped - UNIT_BYTES : units * UNIT_BYTES;
    group->bytes = pages ? mapped : UNIT_BYTES + group->slot_bytes * group->slots;
    if ((!units && group->size_class != OWN_CLASS) || (group->size_class == OWN_CLASS && (!pages || group->slots != 1)))
        return GROUP_CLASS;
    if (are_both || free_mask >> group->slots)
        return GROUP_MASKS;
    if (group->address % UNIT_BYTES || group->bytes > UINT64_MAX - group->address
        || UNIT_BYTES + group->slot_bytes * group->slots > group->bytes || (pages && group->address % AREA_BYTES)
        || group->bytes - UNIT_BYTES - group->slot_bytes * group->slots >= page_bytes)
        return GROUP_PLACE;
    return GROUP_GOOD;
}

/* 0: no memory. */
static int take_meta(struct groups_job *job, uint64_t address, const uint8_t *meta)
{
    const unsigned word = (unsigned) job->layout.word_bytes, swap = job->swap;
    const uint64_t group = load_word(meta + 2 * word, word, swap);
    const uint64_t available = load_word(meta + 3 * word, 4, swap), freed = load_word(meta + 3 * word + 4, 4, swap);
    const uint64_t packed = load_word(meta + 3 * word + 8, word, swap);
    if (!group)
        return 1;
    struct met *met = grown_add(&job->groups, sizeof *met);
    if (!met)
        return 0;
    *met = (struct met) {
        .group = {
            .address = group, .meta = address, .slots = (packed & 31) + 1, .is_freeable = packed >> 5 & 1, .size_class = packed >> 6 & 63,
        },
        .free_mask = available | freed,
    };
    const int are_both = (available & freed) != 0;
    met->group.problem = (uint64_t) measure(&met->group, met->free_mask, are_both, packed >> 12, job->layout.page_bytes);
    if (!(packed & 0xfff)) {    /* no group is so, not even a donated one (donate): what makes it has not written its kind yet */
        met->group.problem = GROUP_MAKING;
        met->group.place = packed >> 12 ? PLACE_MAPPED : PLACE_NESTED;
    }
    met->group.free_slots = (unsigned) __builtin_popcountll(met->free_mask & ((2ull << (met->group.slots - 1)) - 1));
    return 1;
}

/* The next area: 1; the list ends: 0; INTERRUPTED; NO_MEMORY. */
static int take_area(struct groups_job *job)
{
    const unsigned word = (unsigned) job->layout.word_bytes;
    const unsigned first = 8 + 2 * word, meta_bytes = 3 * word + 8 + word, most = (AREA_BYTES - first) / meta_bytes;
    const uint64_t area = job->area;
    uint8_t bytes[AREA_BYTES];
    if (!area)
        return 0;
    const int64_t got = source_read_near(job->source, &job->near, area, bytes, AREA_BYTES, 0);
    if (got < 0)
        return INTERRUPTED;
    job->area = 0;
    if (got < AREA_BYTES || load_word(bytes, 8, job->swap) != job->layout.secret || load_word(bytes + 8 + word, 4, job->swap) != most
        || area % AREA_BYTES) {
        tell(job, got < AREA_BYTES ? GROUP_AREA_UNREADABLE : GROUP_AREA_CHECK, area, 0);
        return 0;
    }
    const int is_new = job->areas.count < job->layout.most_areas ? address_set_add(&job->seen, area) : 0;
    if (is_new <= 0) {
        tell(job, GROUP_AREA_AGAIN, area, 0);
        return is_new;
    }
    uint64_t *listed = grown_add(&job->areas, sizeof *listed);
    if (!listed)
        return NO_MEMORY;
    *listed = area;
    job->area = load_word(bytes + 8, word, job->swap);
    for (unsigned i = 0; i < most; i++)
        if (!take_meta(job, area + first + i * meta_bytes, bytes + first + i * meta_bytes))
            return NO_MEMORY;
    return 1;
}

static int by_address(const void *left, const void *right)
{
    const struct musl_group *one = &((const struct met *) left)->group, *other = &((const struct met *) right)->group;
    if (one->address != other->address)
        return one->address > other->address ? 1 : -1;
    return (one->meta > other->meta) - (one->meta < other->meta);
}

static int by_number(const void *left, const void *right)
{
    const uint64_t one = *(const uint64_t *) left, other = *(const uint64_t *) right;
    return (one > other) - (one < other);
}

/* One of the groups that hold the address at hand, from the outermost to the innermost. */
struct open_group {
    struct met *met;            /* NULL: none, all memory */
    uint64_t end, next_slot;
};

/* The slots [from, to) of a group, as a run. 0: no memory. */
static int add_slots(struct groups_job *job, const struct met *met, uint64_t from, uint64_t to)
{
    const struct musl_group *group = &met->group;
    if (!job->with_rows || from >= to || group->problem != GROUP_GOOD)
        return 1;
    struct slot_run *run = grown_add(&job->runs, sizeof *run);
    if (!run)
        return 0;
    *run = (struct slot_run) {
        .start = group->address + UNIT_BYTES + from * group->slot_bytes, .slot_bytes = group->slot_bytes, .slots = to - from,
        .usable_bytes = group->slot_bytes - TRAILER_BYTES, .label = group->size_class, .kind = MUSL_USED, .free_kind = MUSL_FREE,
        .free_mask = met->free_mask >> from, .base = group->address, .is_read = 1, .tag = job->layout.little_endian ? 0 : TAG_BIG,
    };
    return 1;
}

/* What the group begins with. */
static int add_head(struct groups_job *job, const struct met *met)
{
    if (!job->with_rows || met->group.problem != GROUP_GOOD)
        return 1;
    struct slot_run *run = grown_add(&job->runs, sizeof *run);
    if (run)
        *run = (struct slot_run) {
            .start = met->group.address, .slot_bytes = UNIT_BYTES, .slots = 1, .usable_bytes = UNIT_BYTES, .label = HEAD_LABEL,
            .kind = MUSL_METADATA, .free_kind = MUSL_FREE, .base = met->group.address, .is_read = 1,
            .tag = met->group.meta | (met->group.place == PLACE_NESTED ? TAG_NESTED : 0) | (job->layout.word_bytes == 4 ? TAG_SHORT : 0)
                | (job->layout.little_endian ? 0 : TAG_BIG),
        };
    return run != NULL;
}

/* Where a group lies in the one around it: GROUP_GOOD, and the slot; or why it cannot lie there. */
static int place_in(const struct open_group *around, const struct met *met, uint64_t *slot)
{
    const struct musl_group *outer = &around->met->group, *inner = &met->group;
    const uint64_t away = inner->address - outer->address;
    if (outer->problem != GROUP_GOOD)
        return GROUP_GOOD;
    *slot = away < UNIT_BYTES ? outer->slots : (away - UNIT_BYTES) / outer->slot_bytes;
    if (inner->place == PLACE_MAPPED || *slot >= outer->slots || *slot < around->next_slot
        || inner->bytes > outer->address + UNIT_BYTES + (*slot + 1) * outer->slot_bytes - inner->address)
        return GROUP_OVERLAP;
    if (around->met->free_mask >> *slot & 1)
        return inner->slots - inner->free_slots <= 1 ? GROUP_MAKING : GROUP_OVERLAP;
    return GROUP_GOOD;
}

/* A group that the process has no memory for is damaged. They come by address; `range`: the first that may hold it. */
static int is_mapped(const struct groups_job *job, const struct musl_group *group, uint64_t *range)
{
    while (*range < job->memory_count && job->memory[2 * *range + 1] <= group->address)
        ++*range;
    return *range < job->memory_count && job->memory[2 * *range] <= group->address
        && group->bytes <= job->memory[2 * *range + 1] - group->address;
}

/* All groups as runs in the order of addresses. 0: no memory. */
static int make_runs(struct groups_job *job)
{
    struct open_group open[MOST_DEPTH];
    uint64_t range = 0;
    struct met *groups = job->groups.items;
    unsigned depth = 0;
    for (uint64_t i = 0; i <= job->groups.count; i++) {
        struct met *met = i < job->groups.count ? &groups[i] : NULL;
        for (; depth && (!met || open[depth - 1].end <= met->group.address); depth--)
            if (!add_slots(job, open[depth - 1].met, open[depth - 1].next_slot, open[depth - 1].met->group.slots))
                return 0;
        if (!met)
            break;
        struct musl_group *group = &met->group;
        struct open_group *around = depth ? &open[depth - 1] : NULL;
        uint64_t slot = 0;
        if (group->problem == GROUP_GOOD && !is_mapped(job, group, &range))
            group->problem = GROUP_UNMAPPED;
        if (group->problem == GROUP_GOOD && around)
            group->problem = (uint64_t) place_in(around, met, &slot);
        else if (group->problem == GROUP_GOOD && group->place == PLACE_NESTED)
            group->problem = GROUP_OUTSIDE;
        if (group->problem == GROUP_GOOD && depth == MOST_DEPTH)
            group->problem = GROUP_OVERLAP;
        if (group->problem != GROUP_GOOD)
            tell(job, (int) group->problem, group->address, group->meta);
        /* one that is broken hides nothing but what was cut from its own mapping */
        if (group->problem != GROUP_GOOD && (around || group->place == PLACE_NESTED || group->bytes > UINT64_MAX - group->address))
            continue;
        if (around && around->met->group.problem == GROUP_GOOD) {
            if (!add_slots(job, around->met, around->next_slot, slot))
                return 0;
            around->next_slot = slot + 1;
            around->met->group.nested_slots++;
        } else if (around) {
            group->place = PLACE_LOST;
        }
        open[depth++] = (struct open_group) {met, group->address + group->bytes, 0};
        if (!add_head(job, met))
            return 0;
    }
    return 1;
}

/* One more range, which ends no earlier than those before. 0: no memory. */
static int join_range(struct grown *ranges, uint64_t start, uint64_t bytes)
{
    uint64_t *last = ranges->count ? (uint64_t *) ranges->items + 2 * (ranges->count - 1) : NULL;
    if (last && last[1] >= start) {
        last[1] = start + bytes;
        return 1;
    }
    last = grown_add(ranges, 2 * sizeof *last);
    if (last) {
        last[0] = start;
        last[1] = start + bytes;
    }
    return last != NULL;
}

/* What the masks and lengths of all groups add up to. 0: no memory. */
static int add_up(struct groups_job *job)
{
    for (uint64_t i = 0; i < job->groups.count; i++) {
        const struct musl_group *group = &((const struct met *) job->groups.items)[i].group;
        struct musl_class *sum = &job->classes[group->size_class];
        const uint64_t own_slots = group->slots - group->nested_slots;
        if (group->problem != GROUP_GOOD)
            continue;
        sum->groups++;
        sum->slots += own_slots;
        sum->free_slots += group->free_slots;
        sum->slot_bytes += own_slots * group->slot_bytes;
        sum->free_bytes += group->free_slots * (group->slot_bytes - TRAILER_BYTES);
        sum->counted_slots += group->is_freeable ? group->slots : 0;
        job->sums.groups++;
        job->sums.rest_bytes += group->bytes - own_slots * group->slot_bytes;
        if (group->place == PLACE_NESTED) {
            job->sums.rest_bytes -= group->bytes;
            continue;
        }
        if (group->place == PLACE_LOST) {
            job->sums.lost_bytes += group->bytes;
            continue;
        }
        job->sums.own_bytes += group->bytes;
        job->sums.donated_bytes += group->place == PLACE_DONATED ? group->bytes : 0;
        if (!join_range(&job->held, group->address, group->bytes))
            return 0;
        if (group->place == PLACE_MAPPED && group->slots == 1 && !group->free_slots
            && !join_range(&job->alone, group->address, group->bytes))
            return 0;
    }
    return 1;
}

void heapx_musl_groups_free(struct groups_job *job)
{
    if (!job)
        return;
    free(job->held.items);
    free(job->alone.items);
    free(job->seen.slots);
    free(job->areas.items);
    free(job->groups.items);
    free(job->runs.items);
    free(job);
}

/* `memory`: begin and end of each range of the process, sorted; the caller's. `with_rows`: groups and runs are wanted, not sums alone. */
struct groups_job *heapx_musl_groups_new(const struct source *source, const struct musl_layout *layout, const uint64_t *memory,
                                         uint64_t memory_count, int with_rows)
{
    struct groups_job *job = calloc(1, sizeof *job);
    if (!job)
        return NULL;
    job->source = source;
    job->layout = *layout;
    job->memory = memory;
    job->memory_count = memory_count;
    job->with_rows = with_rows;
    job->swap = is_swapped(layout->little_endian);
    job->area = layout->first_area;
    return job;
}

/* 1: there is more to do; 0; INTERRUPTED; NO_MEMORY. */
int64_t heapx_musl_groups_slice(struct groups_job *job, double seconds)
{
    const double deadline = clock_now() + seconds;
    for (unsigned looked = 0; job->step == OF_AREAS;) {
        const int state = take_area(job);
        if (state < 0)
            return state;
        if (!state) {
            qsort(job->groups.items, (size_t) job->groups.count, sizeof(struct met), by_address);
            job->step = OF_RUNS;
        }
        if (++looked % 64 == 0 && clock_now() > deadline)
            return 1;
    }
    if (job->step != OF_NOTHING && (!make_runs(job) || !add_up(job)))
        return NO_MEMORY;
    qsort(job->areas.items, (size_t) job->areas.count, sizeof(uint64_t), by_number);
    job->step = OF_NOTHING;
    return 0;
}

void heapx_musl_groups_sums(const struct groups_job *job, struct musl_sums *out)
{
    *out = (struct musl_sums) {
        .ended = job->step == OF_NOTHING, .areas = job->areas.count, .groups = job->with_rows ? job->groups.count : 0,
        .runs = job->runs.count, .held = job->held.count, .alone = job->alone.count, .problems = job->problem_count,
        .told = job->problem_count < MOST_MUSL_PROBLEMS ? job->problem_count : MOST_MUSL_PROBLEMS,
    };
}

/* Rooms by heapx_musl_groups_sums; `classes`: HEAD_LABEL. */
void heapx_musl_groups_result(const struct groups_job *job, uint64_t *areas, uint64_t *held, uint64_t *alone, struct musl_class *classes,
                              struct musl_held *sums, struct musl_problem *problems)
{
    const uint64_t told = job->problem_count < MOST_MUSL_PROBLEMS ? job->problem_count : MOST_MUSL_PROBLEMS;
    grown_copy(&job->areas, sizeof *areas, areas, job->areas.count);
    grown_copy(&job->held, 2 * sizeof *held, held, job->held.count);
    grown_copy(&job->alone, 2 * sizeof *alone, alone, job->alone.count);
    memcpy(classes, job->classes, sizeof job->classes);
    *sums = job->sums;
    memcpy(problems, job->problems, told * sizeof *problems);
}

/* Nothing without with_rows. */
void heapx_musl_groups_rows(const struct groups_job *job, struct musl_group *groups, struct slot_run *runs)
{
    for (uint64_t i = 0; job->with_rows && i < job->groups.count; i++)
        groups[i] = ((const struct met *) job->groups.items)[i].group;
    grown_copy(&job->runs, sizeof *runs, runs, job->runs.count);
}

/* ---- slots: where in its slot a block that is in use begins, and how many bytes were asked for, by its header and the end of the slot
   (get_slot_index, get_nominal_size and enframe of src/malloc/mallocng/meta.h) ---- */

#define MARK_SHIFT 5u           /* of the byte before the offset: the index of the slot is below */
#define MARK_GROUP 6u           /* the slot holds a group */
#define MARK_AWAY 7u            /* the block begins further on, by as many units as the offset says */
#define MARK_LONG 5u            /* what is left of the slot stands in the word before its end */

static unsigned half_at(const uint8_t *at, unsigned swap)
{
    uint16_t half;
    memcpy(&half, at, sizeof half);
    return swap ? (unsigned) ((half & 0xff) << 8 | half >> 8) : half;
}

/* From the group's first slot, in units. */
static uint64_t offset_in(const uint8_t *head, unsigned swap)
{
    return head[4] ? load_word(head, 4, swap) : half_at(head + 6, swap);
}

/* That of a block which was freed; malloc writes the offset before the index, and free() takes it away behind it. */
static int is_stale(const uint8_t *head)
{
    return !head[4] && head[5] == 255;
}

/* `swap`: the target's words are not in this machine's order. */
static int read_used(struct window *window, const struct slot_run *run, uint64_t slot, struct slot_block *block, unsigned swap)
{
    const uint64_t index = (slot - run->base - UNIT_BYTES) / run->slot_bytes, end = slot + run->slot_bytes - TRAILER_BYTES;
    const uint8_t *head = window_at(window, slot - 8, 8);
    if (!head)
        return window->interrupted ? SLOT_PAUSED : SLOT_UNREADABLE;
    const int is_away = head[5] == MARK_AWAY << MARK_SHIFT;
    uint64_t begin = slot, offset = offset_in(head, swap);
    if (is_away) {
        begin += UNIT_BYTES * (uint64_t) half_at(head + 6, swap);
        do {    /* a block aligned to more than a MiB has the low half of its offset there */
            if (begin > end)
                return HEADER_HALF;
            head = window_at(window, begin - 8, 8);
            if (!head)
                return window->interrupted ? SLOT_PAUSED : SLOT_UNREADABLE;
            offset = offset_in(head, swap);
            if (is_stale(head))
                return HEADER_STALE;
        } while ((head[5] == MARK_AWAY << MARK_SHIFT || run->base + UNIT_BYTES + UNIT_BYTES * offset != begin)
                 && (begin += UNIT_BYTES << 16) <= end);
        if (begin > end)
            return HEADER_HALF;
    }
    const unsigned mark = head[5] >> MARK_SHIFT;
    if (is_stale(head) || (!head[4] && !head[5] && !head[6] && !head[7] && begin != run->base + UNIT_BYTES))
        return HEADER_STALE;
    const int leads_back = run->base + UNIT_BYTES + UNIT_BYTES * offset == begin;
    if ((head[5] & 31u) != index)
        return is_away || (leads_back && !head[4] && !head[5]) ? HEADER_HALF : HEADER_INDEX;
    if ((head[4] && half_at(head + 6, swap)) || head[4] > 1)
        return HEADER_ZERO;
    if (!leads_back)
        return HEADER_OFFSET;
    const uint8_t *tail = window_at(window, end - 8, 9);
    if (!tail)
        return window->interrupted ? SLOT_PAUSED : SLOT_UNREADABLE;
    uint64_t left = mark;
    if (mark == MARK_LONG) {
        left = load_word(tail + 4, 4, swap);
        if (tail[3])
            return HEADER_ZERO;
    }
    if (mark == MARK_GROUP)
        return HEADER_HALF;
    if (mark > MARK_LONG || (mark == MARK_LONG && left < MARK_LONG) || left > end - begin)
        return HEADER_SLACK;
    block->address = begin;
    block->usable = end - left - begin;
    if (tail[8])
        return HEADER_ZERO;
    if (left) {
        const uint8_t *behind = window_at(window, end - left, 1);
        if (!behind)
            return window->interrupted ? SLOT_PAUSED : SLOT_UNREADABLE;
        if (*behind)
            return HEADER_ZERO;
    }
    return SLOT_READ;
}

/* What a group begins with: the way back to its meta, and, where it lies in a slot of another, the mark before it. */
static int read_head(struct window *window, const struct slot_run *run, uint64_t head, unsigned swap)
{
    const uint64_t meta = run->tag & ~(uint64_t) (TAG_NESTED | TAG_SHORT | TAG_BIG);
    const unsigned lead = run->tag & TAG_NESTED ? UNIT_BYTES : 0, word = run->tag & TAG_SHORT ? 4 : 8;
    const uint8_t *bytes = window_at(window, head - lead, lead + 8);
    if (!bytes)
        return window->interrupted ? SLOT_PAUSED : SLOT_UNREADABLE;
    const uint64_t back = load_word(bytes + lead, word, swap);
    if (back != meta)
        return back ? HEAD_BACK : HEADER_STALE;     /* 0: it is being made, or given up */
    return lead && bytes[lead - 3] >> MARK_SHIFT != MARK_GROUP ? HEAD_MARK : SLOT_READ;
}

static int read_slot(struct window *window, const struct slot_run *run, uint64_t slot, int is_free, struct slot_block *block)
{
    const unsigned swap = is_swapped(!(run->tag & TAG_BIG));
    struct slot_block found = *block;
    const uint8_t *head = is_free ? window_at(window, slot - 8, 8) : NULL;
    if (run->kind == MUSL_METADATA)
        return read_head(window, run, slot, swap);
    if (!is_free)
        return read_used(window, run, slot, block, swap);
    if (head && !head[5] && !head[6] && !head[7])   /* never handed out */
        return SLOT_READ;
    const int state = read_used(window, run, slot, &found, swap);
    return state == SLOT_PAUSED ? state : state == SLOT_READ ? HEADER_USED : SLOT_READ;
}

struct block_source *heapx_musl_blocks(const struct source *memory, const struct slot_run *runs, uint64_t run_count, const uint64_t *frees,
                                       const uint8_t *free_kinds, uint64_t free_count, const uint8_t *classes,
                                       const struct block_wanted *wanted)
{
    return slot_blocks(memory, runs, run_count, frees, free_kinds, free_count, classes, wanted, read_slot);
}

struct slot_tally_job *heapx_musl_tally_new(const struct source *memory, const struct slot_run *runs, uint64_t run_count,
                                            const uint64_t *frees, uint64_t free_count, uint64_t labels)
{
    return slot_tally(memory, runs, run_count, frees, free_count, labels, read_slot);
}
