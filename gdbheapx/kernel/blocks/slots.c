/* The one walk over slots of equal size, for every allocator that cuts its memory into them: as a stream of blocks, and as sums. */
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

/* The first of the sorted addresses that is not below `address`. */
static uint64_t first_free(const uint64_t *frees, uint64_t count, uint64_t address)
{
    uint64_t low = 0;
    while (low < count) {
        const uint64_t middle = low + (count - low) / 2;
        if (frees[middle] < address)
            low = middle + 1;
        else
            count = middle;
    }
    return low;
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
    walk->next_free = first_free(walk->frees, walk->free_count, run->start + walk->slot * run->slot_bytes);
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
