/* The one walk over slots of equal size, for every allocator that cuts its memory into them: as a stream of blocks, and as sums. */
#include "../common/heapx.h"
#include "slots.h"
#include "stream.h"

#include <stdlib.h>

#define SLOT_BLOCK (128u << 10)     /* of a window */
#define SPLIT_SLOTS (1u << 16)      /* of a part, at least */
#define CLOCK_SLOTS 4096u
#define MASK_SLOTS 64u

struct walk {
    const struct slot_run *runs;    /* the caller's, as are all arrays here: in order, without overlap */
    const uint64_t *frees;          /* sorted */
    uint64_t run_count, free_count;
    uint64_t run, slot, next_free;
    slot_reader reader;             /* NULL: no memory is read */
    struct window window;
    uint8_t *bytes;
};

static uint64_t end_of(const struct slot_run *run)
{
    return run->start + run->slot_bytes * run->slots;
}

/* Stands at the first slot that reaches beyond `start`. */
static void walk_from(struct walk *walk, uint64_t start)
{
    uint64_t low = 0, high = walk->run_count;
    while (low < high) {
        const uint64_t middle = low + (high - low) / 2;
        if (end_of(&walk->runs[middle]) <= start)
            low = middle + 1;
        else
            high = middle;
    }
    walk->run = low;
    walk->slot = 0;
    if (low == walk->run_count)
        return;
    const struct slot_run *run = &walk->runs[low];
    if (start > run->start)
        walk->slot = (start - run->start) / run->slot_bytes;
    const uint64_t address = run->start + walk->slot * run->slot_bytes;
    walk->next_free = address ? rows_up_to(walk->frees, walk->free_count, sizeof *walk->frees, address - 1) : 0;
}

/* 0: no memory. */
static int walk_open(struct walk *walk, const struct source *memory)
{
    walk->bytes = walk->reader ? malloc(SLOT_BLOCK) : NULL;
    if (walk->reader)
        window_open(&walk->window, memory, walk->bytes, SLOT_BLOCK, 0, UINT64_MAX);
    return !walk->reader || walk->bytes;
}

static uint64_t walk_at(const struct walk *walk)
{
    if (walk->run < walk->run_count)
        return walk->runs[walk->run].start + walk->slot * walk->runs[walk->run].slot_bytes;
    return walk->run_count ? end_of(&walk->runs[walk->run_count - 1]) : 0;
}

static void walk_step(struct walk *walk)
{
    if (++walk->slot < walk->runs[walk->run].slots)
        return;
    walk->slot = 0;
    walk->run++;
}

enum { BY_NOTHING, BY_MASK, BY_LIST };

/* By what the slot at hand is free; of a list its place is next_free. */
static int who_frees(struct walk *walk, uint64_t address)
{
    const struct slot_run *run = &walk->runs[walk->run];
    while (walk->next_free < walk->free_count && walk->frees[walk->next_free] < address)
        walk->next_free++;
    if (walk->next_free < walk->free_count && walk->frees[walk->next_free] == address)
        return BY_LIST;
    return walk->slot < MASK_SLOTS && (run->free_mask >> walk->slot & 1) ? BY_MASK : BY_NOTHING;
}

/* A slot's block: what a slot_reader returns. */
static int read_slot(struct walk *walk, uint64_t slot, int is_free, struct slot_block *block)
{
    const struct slot_run *run = &walk->runs[walk->run];
    block->address = slot;
    block->usable = run->usable_bytes;
    if (!walk->reader || !run->is_read)
        return SLOT_READ;
    if (walk->slot)
        window_jump(&walk->window, slot, run->slot_bytes);
    const int state = walk->reader(&walk->window, run, slot, is_free, block);
    if (block->address >= slot && block->address - slot <= run->slot_bytes && block->usable <= run->slot_bytes - (block->address - slot))
        return state;
    block->address = slot;
    block->usable = run->usable_bytes;
    return state == SLOT_READ ? SLOT_UNREADABLE : state;
}

/* ---- the stream ---- */

struct slots {
    struct block_source source;     /* first: slots are a block_source */
    struct walk walk;
    const struct source *memory;
    const uint8_t *free_kinds, *classes;
    struct block_wanted wanted;
    uint64_t next_part;             /* where that begins; 0: this is none, or the last */
};

static void slots_free(struct block_source *self)
{
    struct slots *slots = (struct slots *) self;
    free(slots->walk.bytes);
    free(slots);
}

static int is_kind_wanted(const struct slots *slots, uint64_t kind)
{
    return slots->wanted.kinds >> kind & 1;
}

static void add(const struct slots *slots, struct block_rows *rows, const struct slot_block *block, uint64_t kind)
{
    const struct block_wanted *wanted = &slots->wanted;
    if (block->address >= wanted->start && block->usable >= wanted->min_size && block->usable <= wanted->max_size)
        rows_add(rows, block->address, block->usable, slots->classes[kind], (int) kind, (uint32_t) slots->walk.runs[slots->walk.run].arena);
}

static int slots_next(struct block_source *self, double seconds, struct block_rows *rows)
{
    struct slots *slots = (struct slots *) self;
    struct walk *walk = &slots->walk;
    const double deadline = clock_now() + seconds;
    const uint64_t before = rows->count;
    uint64_t looked = 0, reads = walk->window.reads;
    walk->window.interrupted = walk->window.held = 0;
    for (; walk->run < walk->run_count && rows->count < rows->room; walk_step(walk)) {
        const struct slot_run *run = &walk->runs[walk->run];
        const uint64_t address = run->start + walk->slot * run->slot_bytes;
        if ((++looked % CLOCK_SLOTS == 0 || walk->window.reads != reads) && clock_now() > deadline)
            break;
        reads = walk->window.reads;
        const int by = who_frees(walk, address);
        const uint64_t kind = by == BY_LIST ? slots->free_kinds[walk->next_free] : by == BY_MASK ? run->free_kind : run->kind;
        struct slot_block block = {address, run->usable_bytes};
        if (!is_kind_wanted(slots, kind))
            continue;
        walk->window.held = self->keeps && rows->count > before;
        walk->window.keep = self->keeps ? address : 0;
        if (by == BY_NOTHING && read_slot(walk, address, 0, &block) == SLOT_PAUSED)
            break;
        add(slots, rows, &block, kind);
    }
    return 0;
}

static struct block_state slots_state(const struct block_source *self)
{
    const struct slots *slots = (const struct slots *) self;
    const int ended = slots->walk.run == slots->walk.run_count;
    struct block_state state = {(uint64_t) ended, STOP_END, ended && slots->next_part ? slots->next_part : walk_at(&slots->walk)};
    if (!ended && state.at < slots->wanted.start)
        state.at = slots->wanted.start;
    return state;
}

static const uint8_t *slots_lend(const struct block_source *self, uint64_t address, uint64_t *length)
{
    const struct window *window = &((const struct slots *) self)->walk.window;
    const uint64_t away = address - window->begin;
    *length = away < window->length ? window->length - away : 0;
    return *length ? window->bytes + away : NULL;
}

static struct slots *new_part(const struct slots *like, uint64_t first, uint64_t count)
{
    struct slots *part = malloc(sizeof *part);
    if (!part)
        return NULL;
    *part = *like;
    part->walk.runs += first;
    part->walk.run_count = count;
    if (walk_open(&part->walk, like->memory)) {
        walk_from(&part->walk, like->wanted.start);
        return part;
    }
    free(part);
    return NULL;
}

static int slots_split(const struct block_source *self, unsigned most, struct block_source **out, uint64_t *begins)
{
    const struct slots *slots = (const struct slots *) self;
    const struct walk *walk = &slots->walk;
    uint64_t total = 0, sum = 0, first = 0;
    int count = 0;
    for (uint64_t i = 0; i < walk->run_count; i++)
        total += walk->runs[i].slots;
    if (total / SPLIT_SLOTS < most)
        most = (unsigned) (total / SPLIT_SLOTS);
    if (most < 2 || slots->wanted.start || walk->run || walk->slot || (walk->reader && !source_is_parallel(slots->memory)))
        return 0;
    for (uint64_t i = 0; i < walk->run_count; i++) {
        sum += walk->runs[i].slots;
        const int is_last = i + 1 == walk->run_count;
        if (!is_last && ((unsigned) count + 1 == most || sum < total / most * ((unsigned) count + 1)))
            continue;
        struct slots *part = new_part(slots, first, i + 1 - first);
        if (!part) {
            while (count)
                slots_free(out[--count]);
            return NO_MEMORY;
        }
        part->next_part = is_last ? 0 : walk->runs[i + 1].start;
        begins[count] = walk->runs[first].start;
        out[count++] = &part->source;
        first = i + 1;
    }
    return count;
}

struct block_source *slot_blocks(const struct source *memory, const struct slot_run *runs, uint64_t run_count, const uint64_t *frees,
                                 const uint8_t *free_kinds, uint64_t free_count, const uint8_t *classes, const struct block_wanted *wanted,
                                 slot_reader reader)
{
    const struct slots like = {
        .source = {0, slots_next, slots_state, slots_free, reader ? slots_lend : NULL, 0, slots_split},
        .walk = {.runs = runs, .frees = frees, .free_count = free_count, .reader = reader},
        .memory = memory, .free_kinds = free_kinds, .classes = classes, .wanted = *wanted,
    };
    struct slots *slots = new_part(&like, 0, run_count);
    return slots ? &slots->source : NULL;
}

/* Free slots by `frees`, sorted, each with its kind; `classes`: a CLASS_ for each kind. All arrays stay the caller's. NULL: no memory. */
struct block_source *heapx_slot_blocks(const struct source *memory, const struct slot_run *runs, uint64_t run_count, const uint64_t *frees,
                                       const uint8_t *free_kinds, uint64_t free_count, const uint8_t *classes,
                                       const struct block_wanted *wanted)
{
    return slot_blocks(memory, runs, run_count, frees, free_kinds, free_count, classes, wanted, NULL);
}

/* The walks rely on this: each run has slots, they end in the address space, and where the next begins or before; labels are below
   `labels`. */
int heapx_slots_fit(const struct slot_run *runs, uint64_t run_count, uint64_t labels)
{
    uint64_t end = 0;
    for (uint64_t i = 0; i < run_count; i++) {
        const struct slot_run *run = &runs[i];
        if (run->start < end || !run->slot_bytes || !run->slots || run->slots > (UINT64_MAX - run->start) / run->slot_bytes
            || run->usable_bytes > run->slot_bytes || run->label >= labels || run->kind >= SLOT_KINDS || run->free_kind >= SLOT_KINDS)
            return 0;
        end = end_of(run);
    }
    return 1;
}

/* ---- sums ---- */

struct slot_tally_job {
    struct walk walk;
    struct slot_tally *tallies;     /* by label */
    uint64_t labels, problem_count, strays;
    uint64_t checked_free;          /* addresses of the list that were looked at */
    struct slot_problem problems[MOST_SLOT_PROBLEMS];
};

void heapx_slot_tally_free(struct slot_tally_job *job)
{
    if (!job)
        return;
    free(job->walk.bytes);
    free(job->tallies);
    free(job);
}

struct slot_tally_job *slot_tally(const struct source *memory, const struct slot_run *runs, uint64_t run_count, const uint64_t *frees,
                                  uint64_t free_count, uint64_t labels, slot_reader reader)
{
    struct slot_tally_job *job = calloc(1, sizeof *job);
    if (!job)
        return NULL;
    job->walk = (struct walk) {.runs = runs, .run_count = run_count, .frees = frees, .free_count = free_count, .reader = reader};
    job->tallies = calloc(labels, sizeof *job->tallies);
    job->labels = labels;
    if (job->tallies && walk_open(&job->walk, memory))
        return job;
    heapx_slot_tally_free(job);
    return NULL;
}

/* As heapx_slot_blocks. */
struct slot_tally_job *heapx_slot_tally_new(const struct source *memory, const struct slot_run *runs, uint64_t run_count,
                                            const uint64_t *frees, uint64_t free_count, uint64_t labels)
{
    return slot_tally(memory, runs, run_count, frees, free_count, labels, NULL);
}

static void tell(struct slot_tally_job *job, uint64_t address, uint64_t base, int code)
{
    if (job->problem_count < MOST_SLOT_PROBLEMS)
        job->problems[job->problem_count] = (struct slot_problem) {address, base, (uint64_t) code};
    job->problem_count++;
}

/* Of the list's addresses before the place `until` those that are no slot, or a slot again. */
static void tell_strays(struct slot_tally_job *job, uint64_t until)
{
    const uint64_t *frees = job->walk.frees;
    for (uint64_t i = job->checked_free; i < until; i++) {
        const int is_twice = i && frees[i - 1] == frees[i];
        tell(job, frees[i], 0, is_twice ? SLOT_TWICE : SLOT_STRAY);
        job->strays++;
    }
    job->checked_free = until;
}

static int count_slot(struct slot_tally_job *job)
{
    struct walk *walk = &job->walk;
    const struct slot_run *run = &walk->runs[walk->run];
    struct slot_tally *tally = &job->tallies[run->label];
    const uint64_t address = run->start + walk->slot * run->slot_bytes;
    struct slot_block block = {address, run->usable_bytes};
    const int by = who_frees(walk, address);
    tell_strays(job, walk->next_free);
    if (by == BY_LIST)
        job->checked_free = ++walk->next_free;
    const int state = by == BY_LIST ? SLOT_READ : read_slot(walk, address, by == BY_MASK, &block);
    if (state == SLOT_PAUSED)
        return 0;
    tally->used_slots += by == BY_NOTHING;
    tally->free_slots += by == BY_MASK;
    tally->listed_slots += by == BY_LIST;
    tally->used_bytes += by == BY_NOTHING ? block.usable : 0;
    tally->free_bytes += by == BY_NOTHING ? 0 : run->usable_bytes;
    tally->slot_bytes += run->slot_bytes;
    tally->broken_slots += state != SLOT_READ;
    if (state != SLOT_READ)
        tell(job, address, run->base, state);
    return 1;
}

/* How many runs are left; INTERRUPTED. */
int64_t heapx_slot_tally_slice(struct slot_tally_job *job, double seconds)
{
    struct walk *walk = &job->walk;
    const double deadline = clock_now() + seconds;
    uint64_t looked = 0, reads = walk->window.reads;
    walk->window.interrupted = 0;
    for (; walk->run < walk->run_count; walk_step(walk)) {
        if ((++looked % CLOCK_SLOTS == 0 || walk->window.reads != reads) && clock_now() > deadline)
            return (int64_t) (walk->run_count - walk->run);
        reads = walk->window.reads;
        if (!count_slot(job))
            return INTERRUPTED;
    }
    tell_strays(job, walk->free_count);
    return 0;
}

/* `tallies`: one for each label; `problems`: room for MOST_SLOT_PROBLEMS. */
void heapx_slot_tally_result(const struct slot_tally_job *job, struct slot_tally *tallies, struct slot_problem *problems,
                             struct slot_sums *sums)
{
    const uint64_t told = job->problem_count < MOST_SLOT_PROBLEMS ? job->problem_count : MOST_SLOT_PROBLEMS;
    memcpy(tallies, job->tallies, job->labels * sizeof *tallies);
    memcpy(problems, job->problems, told * sizeof *problems);
    *sums = (struct slot_sums) {job->walk.run == job->walk.run_count, walk_at(&job->walk), job->problem_count, told, job->strays};
}

/* ---- pools ---- */

/* Pools: pieces of equal length, each cut into cells of one size, with a header that has the list of its free cells (CPython,
   Objects/obmalloc.c: struct pool_header, the same from 3.6 to 3.14 where a word has 64 bits). */

enum { AT_COUNT = 0, AT_FREE = 8, AT_CLASS = 36, AT_NEXT_OFFSET = 40, AT_LAST_OFFSET = 44 };
#define UNIT 16u
#define MOST_CLASSES 64u
#define MOST_POOL (32u << 10)


struct pool {
    uint64_t size, used, carved, cells;     /* bytes of a cell; cells: in use, handed out ever, in all */
};

/* 0: no pool. */
static int pool_read(struct pool *pool, const uint8_t *header, unsigned swap, uint64_t bytes)
{
    const uint64_t class = load_word(header + AT_CLASS, 4, swap), next = load_word(header + AT_NEXT_OFFSET, 4, swap);
    pool->size = (class + 1) * UNIT;
    if (class >= MOST_CLASSES || load_word(header + AT_LAST_OFFSET, 4, swap) != bytes - pool->size)
        return 0;
    pool->cells = (bytes - POOL_HEADER_BYTES) / pool->size;
    pool->used = load_word(header + AT_COUNT, 4, swap);
    pool->carved = next < POOL_HEADER_BYTES ? pool->cells + 1 : (next - POOL_HEADER_BYTES) / pool->size;
    return pool->used <= pool->carved && pool->carved <= pool->cells && (next - POOL_HEADER_BYTES) % pool->size == 0;
}

struct pools {
    struct block_source source;             /* first: pools are a block_source */
    const struct source *memory;
    const uint64_t *runs;                   /* begin and end of each run of pools, sorted; the caller's */
    uint64_t count, bytes, run, at;         /* at: of the next pool; 0: the run's first */
    uint64_t begin, length;                 /* the pool at hand */
    uint64_t cell;
    struct pool pool;                       /* cells 0: none at hand */
    unsigned swap;
    struct pool_sums sums;
    uint8_t is_free[MOST_POOL / UNIT];
    uint8_t data[MOST_POOL];
};

/* The next pool's address; 0: there is none. */
static uint64_t pools_step(struct pools *pools)
{
    while (pools->run < pools->count) {
        const uint64_t begin = pools->runs[2 * pools->run], end = pools->runs[2 * pools->run + 1];
        const uint64_t at = pools->at ? pools->at : begin;
        if (at < end && end - at >= pools->bytes) {
            pools->at = at + pools->bytes;
            return at;
        }
        pools->run++;
        pools->at = 0;
    }
    return 0;
}

static void find_free(struct pools *pools)
{
    uint64_t at = load_word(pools->data + AT_FREE, 8, pools->swap);
    memset(pools->is_free, 0, (size_t) pools->pool.carved);
    while (at) {
        const uint64_t away = at - pools->begin - POOL_HEADER_BYTES, cell = away / pools->pool.size;
        if (away % pools->pool.size || cell >= pools->pool.carved || pools->is_free[cell])
            break;
        const uint64_t place = POOL_HEADER_BYTES + away;
        if (place + 8 > pools->length)
            break;
        pools->is_free[cell] = 1;
        at = load_word(pools->data + place, 8, pools->swap);
    }
}

/* Reads the pool at hand: 1, 0 if it has no used cell, INTERRUPTED. */
static int pools_open(struct pools *pools, uint64_t at)
{
    const int64_t got = source_read(pools->memory, at, pools->data, pools->bytes);
    if (got < 0) {
        pools->at = at;
        return INTERRUPTED;
    }
    pools->begin = at;
    pools->length = (uint64_t) got;
    pools->cell = 0;
    if (got < POOL_HEADER_BYTES || !pool_read(&pools->pool, pools->data, pools->swap, pools->bytes) || !pools->pool.used) {
        pools->pool.carved = 0;
        return 0;
    }
    find_free(pools);
    return 1;
}

static int pools_next(struct block_source *self, double seconds, struct block_rows *rows)
{
    struct pools *pools = (struct pools *) self;
    const double deadline = clock_now() + seconds;
    const uint64_t before = rows->count;
    for (unsigned opened = 0; rows->count < rows->room;) {
        for (; pools->cell < pools->pool.carved && rows->count < rows->room; pools->cell++)
            if (!pools->is_free[pools->cell])
                rows_add(rows, pools->begin + POOL_HEADER_BYTES + pools->cell * pools->pool.size, pools->pool.size, CLASS_USED, 0,
                         NO_ARENA);
        if (pools->cell < pools->pool.carved || (self->keeps && rows->count > before))
            break;
        if (opened++ % 64 == 63 && clock_now() > deadline)
            break;
        const uint64_t at = pools_step(pools);
        if (!at || pools_open(pools, at) < 0)
            break;
    }
    return 0;
}

static struct block_state pools_state(const struct block_source *self)
{
    const struct pools *pools = (const struct pools *) self;
    struct pools *rest = (struct pools *) self;     /* a run that is at its end is left */
    const uint64_t run = pools->run, at = pools->at, next = pools_step(rest);
    rest->run = run;
    rest->at = at;
    if (pools->cell < pools->pool.carved)
        return (struct block_state) {0, STOP_END, pools->begin + POOL_HEADER_BYTES + pools->cell * pools->pool.size};
    return (struct block_state) {!next, STOP_END, next ? next : pools->count ? pools->runs[2 * pools->count - 1] : 0};
}

static void pools_free(struct block_source *self)
{
    free(self);
}

static const uint8_t *pools_lend(const struct block_source *self, uint64_t address, uint64_t *length)
{
    const struct pools *pools = (const struct pools *) self;
    if (address - pools->begin >= pools->length)
        return NULL;
    *length = pools->length - (address - pools->begin);
    return pools->data + (address - pools->begin);
}

/* `runs`: begin and end of each, sorted, multiples of `bytes` long; they stay the caller's. NULL: no memory, or no such pools. */
struct block_source *heapx_pool_blocks(const struct source *memory, int little_endian, uint64_t bytes, const uint64_t *runs,
                                       uint64_t count)
{
    struct pools *pools = bytes <= MOST_POOL && bytes >= POOL_HEADER_BYTES ? calloc(1, sizeof *pools) : NULL;
    if (!pools)
        return NULL;
    pools->source = (struct block_source) {0, pools_next, pools_state, pools_free, pools_lend, 0, NULL};
    pools->memory = memory;
    pools->swap = is_swapped((uint64_t) little_endian);
    pools->bytes = bytes;
    pools->runs = runs;
    pools->count = count;
    return &pools->source;
}

/* Adds up what the headers say, for at most about `seconds`: 1: there is more; 0: `out` has the sums; INTERRUPTED. */
int64_t heapx_pool_sums(struct block_source *self, struct pool_sums *out, double seconds)
{
    struct pools *pools = (struct pools *) self;
    const double deadline = clock_now() + seconds;
    struct pool_sums *sums = &pools->sums;
    uint64_t at;
    for (unsigned done = 0; (at = pools_step(pools));) {
        struct pool pool;
        const int64_t got = source_read(pools->memory, at, pools->data, POOL_HEADER_BYTES);
        if (got < 0) {
            pools->at = at;
            return INTERRUPTED;
        }
        sums->pools++;
        if (got < POOL_HEADER_BYTES || !pool_read(&pool, pools->data, pools->swap, pools->bytes))
            sums->bad++;
        else if (!pool.used)
            sums->free_pools++;
        else {
            sums->used_bytes += pool.used * pool.size;
            sums->free_bytes += (pool.cells - pool.used) * pool.size;
            sums->lost_bytes += pools->bytes - pool.cells * pool.size;
        }
        if (++done % 256 == 0 && clock_now() > deadline)
            return 1;
    }
    *out = *sums;
    return 0;
}
