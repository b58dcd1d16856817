/* What is made of jemalloc's extents: their counters by arena; a stream of blocks; and those that are linked. */
#include "../blocks/stream.h"
#include "extents.h"

#include <stdlib.h>

/* ---- the counters of a walk, by arena; which pointers in thread caches are no allocated blocks ---- */

struct arena_totals {
    struct state_totals states[STATES];
    uint64_t rows[EXTENT_CLASSES][1 + UNUSED_NUMBERS];  /* class; extents and bytes of dirty, muzzy, retained, pinned */
    struct bin_totals *bins;            /* both behind the struct */
    struct large_totals *larges;
    struct absent_totals absent;
};

struct extents_job {
    struct extents extents;
    struct page_window pages;
    const uint64_t *runs;               /* the caller's: begin and end of each run of pages that a core has; NULL: it is none */
    uint64_t run_count;
    const uint64_t *cached;             /* the caller's */
    uint64_t cached_count, next_cached;
    uint64_t cached_counts[CACHED_REASONS];
    uint64_t cached_listed;
    struct cached_problem cached_rows[MOST_PROBLEMS];
    uint64_t counted;
    int no_memory, done;
    struct arena_totals **arenas;
    struct grown ranges;
};

void heapx_extents_free(struct extents_job *job)
{
    if (!job)
        return;
    for (uint64_t i = 0; job->arenas && i < job->extents.heap->narenas; i++)
        free(job->arenas[i]);
    free(job->arenas);
    free(job->ranges.items);
    extents_close(&job->extents);
    free(job);
}

/* `layout`, `cached` (sorted), `pages` and `runs` (may be NULL) stay the caller's and must outlive the job. NULL: no memory. */
struct extents_job *heapx_extents_new(const struct source *source, const struct heap_layout *layout, const uint64_t *cached,
                                      uint64_t cached_count, const struct page_table *pages, const uint64_t *runs, uint64_t run_count)
{
    struct extents_job *job = calloc(1, sizeof *job);
    if (!job)
        return NULL;
    int opened = extents_open(&job->extents, source, layout);
    job->cached = cached;
    job->cached_count = cached_count;
    page_window_open(&job->pages, pages);
    job->runs = runs;
    job->run_count = run_count;
    job->arenas = calloc(layout->narenas ? (size_t) layout->narenas : 1, sizeof *job->arenas);
    if (!opened || !job->arenas) {
        heapx_extents_free(job);
        return NULL;
    }
    return job;
}

static struct arena_totals *arena_of(struct extents_job *job, uint64_t index)
{
    const struct heap_layout *heap = job->extents.heap;
    struct arena_totals *arena = job->arenas[index];
    const size_t bins_bytes = (size_t) heap->nbins * sizeof *arena->bins, larges_bytes = (size_t) heap->nsizes * sizeof *arena->larges;
    if (!arena && (arena = calloc(1, sizeof *arena + bins_bytes + larges_bytes))) {
        arena->bins = (struct bin_totals *) (arena + 1);
        arena->larges = (struct large_totals *) (arena->bins + heap->nbins);
    }
    job->no_memory |= !arena;
    return job->arenas[index] = arena;
}

static void misplaced(struct extents_job *job, uint64_t address, int reason)
{
    job->cached_counts[reason]++;
    if (job->cached_listed < MOST_PROBLEMS)
        job->cached_rows[job->cached_listed++] = (struct cached_problem) {address, (uint64_t) reason};
}

/* The next cached pointer below `end`; one that was given before is counted and passed over. */
static int next_cached(struct extents_job *job, uint64_t end, uint64_t *address)
{
    while (job->next_cached < job->cached_count && job->cached[job->next_cached] < end) {
        uint64_t place = job->next_cached++;
        *address = job->cached[place];
        if (!place || job->cached[place - 1] != *address)
            return 1;
        misplaced(job, *address, CACHED_TWICE);
    }
    return 0;
}

/* Those below `end` lie in no active extent. */
static void judge_outside(struct extents_job *job, uint64_t end)
{
    uint64_t address;
    while (next_cached(job, end, &address))
        misplaced(job, address, range_has(&job->extents.unknown, address) ? CACHED_UNKNOWN : CACHED_OUTSIDE);
}

/* Bytes of a range that the runs of a core do not have. */
static uint64_t absent_of_runs(const struct extents_job *job, uint64_t begin, uint64_t end)
{
    uint64_t absent = end - begin, low = rows_up_to(job->runs + 1, job->run_count, 2 * sizeof *job->runs, begin);
    for (; low < job->run_count && job->runs[2 * low] < end; low++) {
        const uint64_t from = job->runs[2 * low] > begin ? job->runs[2 * low] : begin;
        absent -= (job->runs[2 * low + 1] < end ? job->runs[2 * low + 1] : end) - from;
    }
    return absent;
}

/* Bytes of a range that are neither in RAM nor in swap. */
static uint64_t absent_in(struct extents_job *job, uint64_t begin, uint64_t end)
{
    if (job->runs)
        return absent_of_runs(job, begin, end);
    const uint64_t page = job->pages.table->page;
    uint64_t absent = 0;
    for (uint64_t at = begin, next; at < end; at = next) {
        next = (at / page + 1) * page < end ? (at / page + 1) * page : end;
        if (!(page_kind(&job->pages, at) & (KIND_RESIDENT | KIND_UNSURE | KIND_SWAPPED)))
            absent += next - at;
    }
    return absent;
}

static uint64_t present(const struct residency *sum)
{
    return sum->resident_bytes + sum->swapped_bytes + sum->unsure_bytes;
}

/* Bytes of a whole extent that are not in memory; those that are there are added. */
static uint64_t count_pages(struct extents_job *job, const struct extent *extent, struct residency *sum)
{
    const uint64_t bytes = extent->end - extent->begin, before = present(sum);
    if (job->pages.table)
        page_window_add(&job->pages, extent->begin, extent->end, sum);
    const uint64_t there = present(sum) - before;
    if (job->runs || (job->pages.table && job->pages.table->outside_count && there < bytes))
        return absent_in(job, extent->begin, extent->end);
    return job->pages.table ? bytes - there : 0;
}

/* Of the only block of an extent that is no slab. */
static uint64_t block_end(const struct extents_job *job, const struct extent *extent)
{
    const uint64_t size = extent_block_bytes(&job->extents, extent);
    return size < extent->end - extent->address ? extent->address + size : extent->end;
}

/* What of an active extent is not in memory, by block: `absent` bytes in all. Those in thread caches count as used here. */
static void charge_active(struct extents_job *job, struct absent_totals *totals, const struct extent *extent, uint64_t absent)
{
    uint64_t blocks = 0;
    if (extent->slab) {
        const struct bin_layout *bin = &job->extents.bins[extent->szind];
        for (uint64_t i = 0, at = extent->begin; i < bin->nregs; i++, at += bin->reg_size_bytes) {
            const uint64_t bytes = absent_in(job, at, at + bin->reg_size_bytes);
            *(region_is_free(extent, i) ? &totals->free : &totals->used) += bytes;
            blocks += bytes;
        }
    } else {    /* what lies before and behind its only block is a page or two */
        blocks = absent - absent_in(job, extent->begin, extent->address) - absent_in(job, block_end(job, extent), extent->end);
        totals->used += blocks;
    }
    *(extent->slab || extent->szind >= job->extents.heap->nbins ? &totals->rounding : &totals->sampled) += absent - blocks;
}

static void charge_cached(struct extents_job *job, struct absent_totals *totals, uint64_t address, uint64_t end)
{
    const uint64_t bytes = absent_in(job, address, end);
    totals->used -= bytes;
    totals->cached += bytes;
}

static void count_slab(struct extents_job *job, struct bin_totals *totals, const struct extent *extent, struct absent_totals *absent)
{
    const struct bin_layout *bin = &job->extents.bins[extent->szind];
    uint64_t address;
    totals->curslabs++;
    totals->curregs += bin->nregs - extent->nfree;
    totals->nonfull_slabs += extent->nfree != 0;
    while (next_cached(job, extent->end, &address)) {
        uint64_t offset = address - extent->begin;
        if (offset % bin->reg_size_bytes || offset / bin->reg_size_bytes >= bin->nregs)
            misplaced(job, address, CACHED_NOT_START);
        else if (region_is_free(extent, offset / bin->reg_size_bytes))
            misplaced(job, address, CACHED_FREE);
        else {
            totals->cached_regions++;
            if (absent)
                charge_cached(job, absent, address, address + bin->reg_size_bytes);
        }
    }
}

static void count_large(struct extents_job *job, struct large_totals *totals, const struct extent *extent, struct absent_totals *absent)
{
    uint64_t address, bytes = extent->end - extent->begin;
    totals->extents++;
    totals->bytes += bytes;
    while (next_cached(job, extent->end, &address)) {
        if (address != extent->address) {
            misplaced(job, address, CACHED_NOT_START);
        } else {
            totals->cached_extents++;
            totals->cached_bytes += bytes;
            if (absent)
                charge_cached(job, absent, address, block_end(job, extent));
        }
    }
}

/* Of what is counted, joined where it touches. */
static void join(struct extents_job *job, uint64_t begin, uint64_t end)
{
    struct range *last = job->ranges.count ? (struct range *) job->ranges.items + job->ranges.count - 1 : NULL;
    if (last && (last->end == begin || job->ranges.count == MOST_RANGES)) {
        last->end = end;
        return;
    }
    last = grown_add(&job->ranges, sizeof *last);
    if (last)
        *last = (struct range) {begin, end};
    else
        job->no_memory = 1;
}

static void count(struct extents_job *job, const struct extent *extent)
{
    struct range *unknown = &job->extents.unknown;
    struct arena_totals *arena = arena_of(job, extent->arena);
    if (!arena)
        return;
    int state = extent_state(&job->extents, extent);
    job->counted++;
    join(job, extent->begin, extent->end);
    arena->states[state].extents++;
    arena->states[state].bytes += extent->end - extent->begin;
    const uint64_t absent = count_pages(job, extent, &arena->states[state].residency);
    uint64_t *const of_state[STATES] = {NULL, &arena->absent.dirty, &arena->absent.muzzy, &arena->absent.retained, &arena->absent.pinned,
                                        &arena->absent.other};
    if (absent && state == STATE_ACTIVE)
        charge_active(job, &arena->absent, extent, absent);
    else if (absent)
        *of_state[state] += absent;
    judge_outside(job, extent->begin);
    if (unknown->begin < extent->end)   /* what is known now */
        unknown->begin = unknown->end > extent->end ? extent->end : unknown->end;
    if (state != STATE_ACTIVE) {
        const uint64_t bytes = extent->end - extent->begin;
        uint64_t *row = arena->rows[histogram_class(bytes, (unsigned) job->extents.heap->rtree.lg_page)];
        if (state != STATE_OTHER) {
            row[1 + 2 * (state - STATE_DIRTY)]++;
            row[2 + 2 * (state - STATE_DIRTY)] += bytes;
        }
        judge_outside(job, extent->end);
    } else if (extent->slab)
        count_slab(job, &arena->bins[extent->szind], extent, absent ? &arena->absent : NULL);
    else
        count_large(job, &arena->larges[extent->szind], extent, absent ? &arena->absent : NULL);
}

/* Works for about `seconds`. Returns 1 if there is more to do, 0 if not, INTERRUPTED, or NO_MEMORY. */
int64_t heapx_extents_slice(struct extents_job *job, double seconds)
{
    const struct extent *extent;
    int state = EXTENTS_ONE;
    extents_resume(&job->extents, seconds);
    while (!job->done && (state = extents_next(&job->extents, &extent)) == EXTENTS_ONE) {
        count(job, extent);
        if (job->no_memory)
            break;
    }
    if (job->no_memory || job->extents.tree.no_memory)
        return NO_MEMORY;
    if (extents_interrupted(&job->extents))
        return INTERRUPTED;
    if (!job->done && state == EXTENTS_END) {
        judge_outside(job, UINT64_MAX);
        job->done = 1;
    }
    return !job->done;
}

void heapx_extents_summary(const struct extents_job *job, struct extents_summary *out)
{
    const struct extents *extents = &job->extents;
    *out = (struct extents_summary) {
        .done = (uint64_t) job->done, .at = extents_at(extents), .nodes = extents->tree.nodes, .leaf_nodes = extents->tree.leaf_nodes,
        .extents = job->counted, .unassociated_extents = extents->unassociated, .unparsed_bytes = extents->unparsed_bytes,
        .unreadable_bytes = extents->tree.unreadable_bytes, .problems = extents->problems.listed, .details = extents->details.listed,
        .cached_problems = job->cached_listed,
    };
}

/* By code and by reason how many there are, and of the first MOST_PROBLEMS each. */
void heapx_extents_problems(const struct extents_job *job, uint64_t *counts, uint64_t *detail_counts, uint64_t *cached_counts,
                            struct extent_problem *problems, struct extent_problem *details, struct cached_problem *cached)
{
    const struct extents *extents = &job->extents;
    memcpy(counts, extents->problems.counts, sizeof extents->problems.counts);
    memcpy(detail_counts, extents->details.counts, sizeof extents->details.counts);
    memcpy(cached_counts, job->cached_counts, sizeof job->cached_counts);
    memcpy(problems, extents->problems.rows, sizeof extents->problems.rows);
    memcpy(details, extents->details.rows, sizeof extents->details.rows);
    memcpy(cached, job->cached_rows, sizeof job->cached_rows);
}

/* Copies up to `room` ranges (begin, end); returns how many there are. */
uint64_t heapx_extents_ranges(const struct extents_job *job, uint64_t room, uint64_t *out)
{
    return grown_copy(&job->ranges, sizeof(struct range), out, room);
}

/* Those rows that have anything, each with its number in front. */
static uint64_t write_rows(uint64_t *out, const void *rows, uint64_t count, size_t numbers)
{
    const uint64_t *row = rows;
    uint64_t written = 0;
    for (uint64_t i = 0; i < count; i++, row += numbers) {
        uint64_t any = 0;
        for (size_t k = 1; k < numbers; k++)
            any |= row[k];
        if (any) {
            memcpy(out + written * numbers, row, numbers * 8);
            out[written++ * numbers] = i;
        }
    }
    return written;
}

/* There is room for as many bins and larges as the layout has, and for EXTENT_CLASSES. Writes how many of each there are. 0: the arena
   has no extent. */
int heapx_extents_arena(const struct extents_job *job, uint64_t index, struct state_totals *states, struct bin_totals *bins,
                        struct large_totals *larges, uint64_t *classes, uint64_t *counts, struct absent_totals *absent)
{
    const struct arena_totals *arena = job->arenas[index];
    if (!arena)
        return 0;
    memcpy(states, arena->states, sizeof arena->states);
    *absent = arena->absent;
    counts[0] = write_rows((uint64_t *) bins, arena->bins, job->extents.heap->nbins, sizeof *bins / 8);
    counts[1] = write_rows((uint64_t *) larges, arena->larges, job->extents.heap->nsizes, sizeof *larges / 8);
    counts[2] = write_rows(classes, arena->rows, EXTENT_CLASSES, 1 + UNUSED_NUMBERS);
    return 1;
}

/* ---- blocks: the regions of slabs, large allocations, and the extents that nobody has ---- */

struct blocks {
    struct block_source source;     /* first: blocks are a block_source */
    struct extents extents;
    const struct extent *extent;    /* the one at hand, from region `region` on; NULL if the next is wanted */
    uint64_t region;
    const uint64_t *cached;         /* the caller's */
    uint64_t cached_count, next_cached;
    struct block_wanted wanted;
    uint64_t arena;                 /* UINT64_MAX for all */
    int ended;
};

static const uint8_t CLASS_OF[] = {
    [BLOCK_USED] = CLASS_USED, [BLOCK_CACHED] = CLASS_CACHED, [BLOCK_FREE] = CLASS_FREE, [BLOCK_DIRTY] = CLASS_RETURNED,
    [BLOCK_MUZZY] = CLASS_RETURNED, [BLOCK_RETAINED] = CLASS_RETURNED, [BLOCK_OTHER] = CLASS_OVERHEAD,
    [BLOCK_PINNED] = CLASS_RETURNED,    /* as all extents that nobody has: no page of it lies between blocks */
};

static void blocks_free(struct block_source *self)
{
    struct blocks *blocks = (struct blocks *) self;
    extents_close(&blocks->extents);
    free(blocks);
}

/* Whether the pointer is in a thread cache; asked in ascending order. */
static int is_cached(struct blocks *blocks, uint64_t address)
{
    while (blocks->next_cached < blocks->cached_count && blocks->cached[blocks->next_cached] < address)
        blocks->next_cached++;
    return blocks->next_cached < blocks->cached_count && blocks->cached[blocks->next_cached] == address;
}

static int wants_size(const struct blocks *blocks, uint64_t size)
{
    return size >= blocks->wanted.min_size && size <= blocks->wanted.max_size;
}

static void add(const struct blocks *blocks, struct block_rows *rows, uint64_t address, uint64_t size, int status)
{
    if ((blocks->wanted.kinds >> status & 1) && address >= blocks->wanted.start && wants_size(blocks, size))
        rows_add(rows, address, size, CLASS_OF[status], status, (uint32_t) blocks->extent->arena);
}

static void list_slab(struct blocks *blocks, struct block_rows *rows)
{
    const struct extent *extent = blocks->extent;
    const struct bin_layout *bin = &blocks->extents.bins[extent->szind];
    const uint64_t regions = 1u << BLOCK_USED | 1u << BLOCK_CACHED | 1u << BLOCK_FREE;
    if (!(blocks->wanted.kinds & regions) || !wants_size(blocks, bin->reg_size_bytes))
        blocks->region = bin->nregs;
    for (; blocks->region < bin->nregs && rows->count < rows->room; blocks->region++) {
        uint64_t address = extent->begin + blocks->region * bin->reg_size_bytes;
        int status = region_is_free(extent, blocks->region) ? BLOCK_FREE : is_cached(blocks, address) ? BLOCK_CACHED : BLOCK_USED;
        add(blocks, rows, address, bin->reg_size_bytes, status);
    }
    if (blocks->region == bin->nregs)
        blocks->extent = NULL;
}

static const uint8_t BLOCK_OF[] = {
    [STATE_DIRTY] = BLOCK_DIRTY, [STATE_MUZZY] = BLOCK_MUZZY, [STATE_RETAINED] = BLOCK_RETAINED, [STATE_PINNED] = BLOCK_PINNED,
    [STATE_OTHER] = BLOCK_OTHER,
};

static void list_extent(struct blocks *blocks, struct block_rows *rows)
{
    const struct extent *extent = blocks->extent;
    const int state = extent_state(&blocks->extents, extent);
    if (state == STATE_ACTIVE && extent->slab) {
        list_slab(blocks, rows);
        return;
    }
    if (state == STATE_ACTIVE)
        add(blocks, rows, extent->address, extent_block_bytes(&blocks->extents, extent),
            is_cached(blocks, extent->address) ? BLOCK_CACHED : BLOCK_USED);
    else
        add(blocks, rows, extent->begin, extent->end - extent->begin, BLOCK_OF[state]);
    blocks->extent = NULL;
}

static int blocks_next(struct block_source *self, double seconds, struct block_rows *rows)
{
    struct blocks *blocks = (struct blocks *) self;
    extents_resume(&blocks->extents, seconds);
    while (rows->count < rows->room && !blocks->ended) {
        if (blocks->extent) {
            list_extent(blocks, rows);
            continue;
        }
        const struct extent *extent;
        int state = extents_next(&blocks->extents, &extent);
        if (state == EXTENTS_PAUSED)
            break;
        blocks->ended = state == EXTENTS_END;
        if (blocks->ended)
            break;
        if (extent->end > blocks->wanted.start && (blocks->arena == UINT64_MAX || blocks->arena == extent->arena)) {
            blocks->extent = extent;
            blocks->region = 0;
        }
    }
    return blocks->extents.tree.no_memory ? NO_MEMORY : 0;
}

static struct block_state blocks_state(const struct block_source *self)
{
    const struct blocks *blocks = (const struct blocks *) self;
    const struct extent *extent = blocks->extent;
    struct block_state state = {(uint64_t) blocks->ended, STOP_END, extent ? extent->begin : extents_at(&blocks->extents)};
    if (extent && blocks->region)
        state.at += blocks->region * blocks->extents.bins[extent->szind].reg_size_bytes;
    if (!state.ended && state.at < blocks->wanted.start)
        state.at = blocks->wanted.start;
    return state;
}

/* `arena`: UINT64_MAX for all. `layout` and `cached` stay the caller's. NULL: no memory. */
struct block_source *heapx_extent_blocks(const struct source *memory, const struct heap_layout *layout, const uint64_t *cached,
                                         uint64_t cached_count, const struct block_wanted *wanted, uint64_t arena)
{
    const struct block_source source = {0, blocks_next, blocks_state, blocks_free, NULL, 0, NULL};
    struct blocks *blocks = calloc(1, sizeof *blocks);
    if (!blocks)
        return NULL;
    blocks->source = source;
    blocks->cached = cached;
    blocks->cached_count = cached_count;
    blocks->wanted = *wanted;
    blocks->arena = arena;
    if (extents_open(&blocks->extents, memory, layout))
        return &blocks->source;
    blocks_free(&blocks->source);
    return NULL;
}

/* ---- extents that are linked: the pairing heaps of unused extents and of slabs with a free region, and the rings beside them

   In a heap (ph.h) a member's `prev` is its parent or the sibling before it, the root's `next` begins the list of those inserted since; in
   a ring (ql.h) a member's `next` leads to one whose `prev` leads back. The first contradiction ends a list. ---- */

#define MEMBERS_BETWEEN_CLOCKS 1024u

struct step {
    uint64_t at, before;
};

struct linked_job {
    struct extents extents;     /* its fields and its pages; no tree is walked */
    const struct linked_list *lists;
    uint64_t count, place;
    struct linked *answers;
    struct grown steps;         /* members that were seen and not visited */
    int open;
};

void heapx_linked_free(struct linked_job *job)
{
    if (!job)
        return;
    free(job->answers);
    free(job->steps.items);
    extents_close(&job->extents);
    free(job);
}

/* `layout` and `lists` stay the caller's. NULL: no memory. */
struct linked_job *heapx_linked_new(const struct source *source, const struct heap_layout *layout, const struct linked_list *lists,
                                    uint64_t count)
{
    struct linked_job *job = calloc(1, sizeof *job);
    if (!job)
        return NULL;
    int opened = extents_open(&job->extents, source, layout);
    job->lists = lists;
    job->count = count;
    job->answers = calloc(count ? (size_t) count : 1, sizeof *job->answers);
    if (!opened || !job->answers) {
        heapx_linked_free(job);
        return NULL;
    }
    return job;
}

static int push(struct linked_job *job, uint64_t at, uint64_t before)
{
    struct step *step = grown_add(&job->steps, sizeof *step);
    if (step)
        *step = (struct step) {at, before};
    return step != NULL;
}

/* What a member says of itself contradicts its list: LINKED_ number. */
static int judge(const struct extents *extents, const struct linked_list *list, uint64_t bits)
{
    const uint64_t szind = bits_of(bits, extents->layout->szind), nfree = bits_of(bits, extents->layout->nfree);
    if (bits_of(bits, extents->layout->arena) != list->arena || bits_of(bits, extents->layout->state) != list->state)
        return LINKED_ALIEN;
    if (list->szind != UINT64_MAX && szind != list->szind)
        return LINKED_ALIEN;
    if (list->is_nonfull && (szind >= extents->heap->nbins || !nfree || nfree >= extents->bins[szind].nregs))
        return LINKED_FULL;
    return LINKED_GOOD;
}

/* Visits the member on top of the steps. 0: no memory; -1: reading was interrupted. */
static int visit(struct linked_job *job)
{
    const struct linked_list *list = &job->lists[job->place];
    struct linked *answer = &job->answers[job->place];
    struct extents *extents = &job->extents;
    const struct step step = ((const struct step *) job->steps.items)[job->steps.count - 1];
    const int is_ring = list->child_offset == NO_LINK, is_first = step.before == 0;
    const uint8_t *bytes = NULL;
    answer->at = step.at;
    answer->before = step.before;
    if (!(step.at & (extents->tree.word - 1)))
        bytes = extent_bytes(extents, step.at);
    if (extents->pages.interrupted)
        return -1;
    job->steps.count--;
    if (!bytes) {
        answer->problem = LINKED_UNREADABLE;
        return 1;
    }
    const uint64_t prev = word_at(extents, bytes + list->prev_offset);
    const uint64_t next = word_at(extents, bytes + list->next_offset);
    const uint64_t child = is_ring ? 0 : word_at(extents, bytes + list->child_offset);
    if (!is_first && prev != step.before) {
        answer->problem = LINKED_BACK;
        return 1;
    }
    if (is_ring && !is_first && step.at == list->head)  /* around */
        return 1;
    answer->problem = (uint64_t) judge(extents, list, load_word(bytes + extents->layout->bits_offset, 8, extents->tree.swap));
    if (answer->problem)
        return 1;
    if (answer->members >= list->most) {
        answer->problem = LINKED_CYCLE;
        return 1;
    }
    answer->members++;
    answer->bytes += word_at(extents, bytes + extents->layout->size_offset) & ~(extents->tree.page - 1);
    if (is_ring)
        return push(job, next, step.at);
    return (!next || push(job, next, step.at)) && (!child || push(job, child, step.at));
}

/* Works for about `seconds`. Returns 1 if there is more to do, 0 if not, INTERRUPTED, or NO_MEMORY. */
int64_t heapx_linked_slice(struct linked_job *job, double seconds)
{
    uint64_t visited = 0;
    extents_resume(&job->extents, seconds);
    while (job->place < job->count) {
        if (!job->open) {
            job->open = 1;
            job->steps.count = 0;
            if (job->lists[job->place].head && !push(job, job->lists[job->place].head, 0))
                return NO_MEMORY;
        }
        if (!job->steps.count || job->answers[job->place].problem) {
            job->open = 0;
            job->place++;
            continue;
        }
        const int state = visit(job);
        if (!state)
            return NO_MEMORY;
        if (state < 0)
            return INTERRUPTED;
        if (++visited % MEMBERS_BETWEEN_CLOCKS == 0 && clock_now() > job->extents.deadline)
            return 1;
    }
    return 0;
}

/* Writes the answers of the lists that are done; returns how many those are. */
uint64_t heapx_linked_result(const struct linked_job *job, struct linked *out)
{
    memcpy(out, job->answers, (size_t) job->place * sizeof *job->answers);
    return job->place;
}
