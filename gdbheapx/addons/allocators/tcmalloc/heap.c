/* tcmalloc's page map: each page that a span begins at leads to its struct Span, free spans too (src/pagemap.h, span.h of gperftools).
   Spans come in the order of addresses by construction. A span is believed only if it says that it begins at the page that led to it:
   words of other pages are left over from spans that were joined, or are those of its inner pages. */
#include "blocks/slots.h"
#include "gdbheapx_tcmalloc.h"

#include <stdlib.h>

#define LEAF_BLOCK (128u << 10)
#define WORDS_BETWEEN_CLOCKS 65536u
#define SPANS_BETWEEN_CLOCKS 1024u

struct spans_job {
    const struct source *source;
    struct span_layout layout;
    const struct page_leaf *leaves;     /* the caller's: by place, each place once */
    const uint64_t *sizes;              /* the caller's: of each class, 0: there is none */
    uint64_t leaf_count, leaf, page;    /* the leaf at hand; the next page, by its number */
    unsigned swap;
    int is_open;                        /* the window is onto the leaf at hand */
    struct grown spans, runs, held;
    struct span_tally tallies[TC_LABELS];
    uint64_t problem_count;
    struct span_problem problems[MOST_SPAN_PROBLEMS];
    struct blanks blanks;
    struct window window;
    struct pages pages;
    uint8_t bytes[LEAF_BLOCK];
};

static void tell(struct spans_job *job, uint64_t code, uint64_t address, uint64_t page)
{
    if (job->problem_count < MOST_SPAN_PROBLEMS)
        job->problems[job->problem_count] = (struct span_problem) {code, address, page << job->layout.page_shift};
    job->problem_count++;
}

void heapx_tc_spans_free(struct spans_job *job)
{
    if (!job)
        return;
    free(job->spans.items);
    free(job->runs.items);
    free(job->held.items);
    pages_close(&job->pages);
    free(job);
}

/* `leaves` and `sizes` (SIZE_CLASSES of them) stay the caller's. NULL: no memory. */
struct spans_job *heapx_tc_spans_new(const struct source *source, const struct span_layout *layout, const struct page_leaf *leaves,
                                     uint64_t leaf_count, const uint64_t *sizes)
{
    struct spans_job *job = calloc(1, sizeof *job);
    if (!job)
        return NULL;
    job->source = source;
    job->layout = *layout;
    job->leaves = leaves;
    job->leaf_count = leaf_count;
    job->sizes = sizes;
    job->swap = is_swapped(layout->little_endian);
    pages_open(&job->pages, source, 0);
    return job;
}

static int add_run(struct spans_job *job, uint64_t start, uint64_t size, uint64_t count, uint64_t label, uint64_t kind, uint64_t base)
{
    struct slot_run *run = grown_add(&job->runs, sizeof *run);
    if (run)
        *run = (struct slot_run) {
            .start = start, .slot_bytes = size, .slots = count, .usable_bytes = size, .label = label, .kind = kind, .free_kind = TC_CENTRAL,
            .base = base,
        };
    return run != NULL;
}

/* Its memory as slots. 0: no memory. */
static int add_runs(struct spans_job *job, const struct tc_span *span)
{
    if (span->location == SPAN_ON_NORMAL)
        return add_run(job, span->start, span->bytes, 1, TC_FREE_LABEL, TC_FREE_SPAN, span->address);
    if (span->location == SPAN_ON_RETURNED)
        return add_run(job, span->start, span->bytes, 1, TC_RETURNED_LABEL, TC_RETURNED, span->address);
    if (!span->size_class)
        return add_run(job, span->start, span->bytes, 1, TC_LARGE, TC_USED, span->address);
    const uint64_t size = job->sizes[span->size_class], end = span->start + size * span->objects;
    const uint64_t rest = span->bytes - size * span->objects;
    if (span->objects && !add_run(job, span->start, size, span->objects, span->size_class, TC_USED, span->address))
        return 0;
    return !rest || add_run(job, end, rest, 1, TC_TAIL_LABEL, TC_TAIL, span->address);
}

/* In the sums of its label, and in the run of spans that it touches. 0: no memory. */
static int count_span(struct spans_job *job, const struct tc_span *span)
{
    const uint64_t labels[] = {[SPAN_IN_USE] = span->size_class, [SPAN_ON_NORMAL] = TC_FREE_LABEL, [SPAN_ON_RETURNED] = TC_RETURNED_LABEL};
    struct span_tally *tally = &job->tallies[labels[span->location]];
    tally->spans++;
    tally->bytes += span->bytes;
    tally->objects += span->objects;
    if (span->size_class && span->refcount < span->objects)
        tally->listed += span->objects - span->refcount;
    struct span_range *last = (struct span_range *) job->held.items + job->held.count - 1;
    if (job->held.count && last->end == span->start) {
        last->end += span->bytes;
        return 1;
    }
    struct span_range *range = grown_add(&job->held, sizeof *range);
    if (range)
        *range = (struct span_range) {span->start, span->start + span->bytes};
    return range != NULL;
}

/* The span that a page leads to: how many pages it has, 0 if it does not begin there; NO_MEMORY, INTERRUPTED. */
static int64_t take_span(struct spans_job *job, uint64_t address, uint64_t page)
{
    const struct span_layout *layout = &job->layout;
    uint8_t bytes[SPAN_BYTES];
    if (!pages_read(&job->pages, address, bytes, sizeof bytes)) {
        if (job->pages.interrupted)
            return INTERRUPTED;
        tell(job, SPAN_UNREADABLE, address, page);
        return 0;
    }
    const uint64_t start = load_word(bytes, 8, job->swap), length = load_word(bytes + 8, 8, job->swap);
    if (start != page)
        return 0;
    const uint64_t size_class = bytes[42], location = bytes[43] & 3;
    const uint64_t most = (UINT64_C(1) << layout->page_bits) - page;
    const int has_class = location == SPAN_IN_USE && size_class;
    if (!length || length > most || location > SPAN_ON_RETURNED || (has_class && !(size_class < SIZE_CLASSES && job->sizes[size_class]))) {
        tell(job, SPAN_WRONG, address, page);
        return 0;
    }
    struct tc_span *span = grown_add(&job->spans, sizeof *span);
    if (!span)
        return NO_MEMORY;
    const uint64_t bytes_long = length << layout->page_shift;
    *span = (struct tc_span) {
        .address = address,
        .start = page << layout->page_shift,
        .bytes = bytes_long,
        .size_class = has_class ? size_class : 0,
        .location = location,
        .is_sampled = bytes[43] >> 2 & 1,
        .refcount = job->swap ? (uint64_t) bytes[40] << 8 | bytes[41] : (uint64_t) bytes[41] << 8 | bytes[40],
        .objects = has_class ? bytes_long / job->sizes[size_class] : 1,
        .list = has_class || (location == SPAN_IN_USE && bytes[43] & 4) ? load_word(bytes + 32, 8, job->swap) : 0,
    };
    return count_span(job, span) && add_runs(job, span) ? (int64_t) length : NO_MEMORY;
}

/* Works for about `seconds`. Returns 1 if there is more to do, 0 if not, INTERRUPTED, or NO_MEMORY. */
int64_t heapx_tc_spans_slice(struct spans_job *job, double seconds)
{
    const double deadline = clock_now() + seconds;
    const uint64_t in_leaf = UINT64_C(1) << job->layout.leaf_bits;
    job->window.interrupted = job->pages.interrupted = 0;
    for (uint64_t looked = 0, taken = 0; job->leaf < job->leaf_count; job->leaf++, job->is_open = 0) {
        const struct page_leaf *leaf = &job->leaves[job->leaf];
        const uint64_t first = leaf->place << job->layout.leaf_bits, end = leaf->address + 8 * in_leaf;
        if (!job->is_open) {
            window_open(&job->window, job->source, job->bytes, sizeof job->bytes, leaf->address, end);
            job->blanks = (struct blanks) {0, 0};
            job->is_open = 1;
        }
        if (job->page < first)
            job->page = first;
        while (job->page < first + in_leaf) {
            if (++looked % WORDS_BETWEEN_CLOCKS == 0 && clock_now() > deadline)
                return 1;
            const uint64_t at = leaf->address + 8 * (job->page - first);
            if (at >= job->blanks.until || at < job->blanks.from) {     /* most of a leaf was never touched */
                const uint64_t next = source_skip(job->source, &job->blanks, at, end) & ~UINT64_C(7);
                if (next > at) {
                    job->page = first + (next - leaf->address) / 8;
                    continue;
                }
            }
            const uint8_t *word = window_at(&job->window, at, 8);
            if (!word) {
                if (job->window.interrupted)
                    return INTERRUPTED;
                tell(job, SPAN_LEAF, at, job->page);
                job->page = first + in_leaf;
                break;
            }
            const uint64_t address = load_word(word, 8, job->swap);
            if (!address) {
                job->page++;
                continue;
            }
            const int64_t pages = address & 7 ? 0 : take_span(job, address, job->page);
            if (pages < 0)
                return pages;
            job->page += pages ? (uint64_t) pages : 1;
            if (++taken % SPANS_BETWEEN_CLOCKS == 0 && clock_now() > deadline)
                return 1;
        }
    }
    return 0;
}

void heapx_tc_spans_sums(const struct spans_job *job, struct span_sums *out)
{
    *out = (struct span_sums) {
        .ended = job->leaf == job->leaf_count,
        .spans = job->spans.count,
        .runs = job->runs.count,
        .held = job->held.count,
        .problems = job->problem_count,
        .told = job->problem_count < MOST_SPAN_PROBLEMS ? job->problem_count : MOST_SPAN_PROBLEMS,
    };
}

/* Into arrays that are as long as the sums say; TC_LABELS tallies. */
void heapx_tc_spans_result(const struct spans_job *job, struct tc_span *spans, struct slot_run *runs, struct span_problem *problems,
                           struct span_tally *tallies, struct span_range *held)
{
    const uint64_t told = job->problem_count < MOST_SPAN_PROBLEMS ? job->problem_count : MOST_SPAN_PROBLEMS;
    grown_copy(&job->spans, sizeof *spans, spans, job->spans.count);
    grown_copy(&job->runs, sizeof *runs, runs, job->runs.count);
    grown_copy(&job->held, sizeof *held, held, job->held.count);
    memcpy(tallies, job->tallies, sizeof job->tallies);
    if (told)
        memcpy(problems, job->problems, (size_t) told * sizeof *problems);
}

/* ---- lists of free objects: each object's first word is the address of the next one, 0 at the end (src/linked_list.h) ---- */

#define LINKS_BETWEEN_CLOCKS 1024u
#define SPAN_BLOCK (256u << 10)
#define KIND_SHIFT 3u           /* KIND_BITS */

struct lists_job {
    const struct tc_free_list *lists;      /* the caller's */
    uint64_t list_count, list, most;    /* `most`: objects of all lists */
    struct tc_list_end *ends;              /* the caller's */
    uint64_t next;
    int is_begun;
    unsigned swap;
    struct grown objects;
    struct window window;       /* onto spans, in their order: a list jumps about in one */
    struct pages pages;
    uint8_t bytes[SPAN_BLOCK];
};

void heapx_tc_lists_free(struct lists_job *job)
{
    if (!job)
        return;
    free(job->objects.items);
    pages_close(&job->pages);
    free(job);
}

/* `lists` and `ends` (one for each) stay the caller's. NULL: no memory. */
struct lists_job *heapx_tc_lists_new(const struct source *source, uint64_t little_endian, const struct tc_free_list *lists,
                                     uint64_t list_count, uint64_t most, struct tc_list_end *ends)
{
    struct lists_job *job = calloc(1, sizeof *job);
    if (!job)
        return NULL;
    job->lists = lists;
    job->list_count = list_count;
    job->most = most;
    job->ends = ends;
    job->swap = is_swapped(little_endian);
    pages_open(&job->pages, source, 0);
    window_open(&job->window, source, job->bytes, sizeof job->bytes, 0, UINT64_MAX);
    return job;
}

/* The object's first word: 1; 0: it cannot be read, or reading was interrupted. */
static int read_link(struct lists_job *job, const struct tc_free_list *list, uint64_t object, uint8_t *word)
{
    const uint64_t offset = object - job->window.begin;
    if (list->start && offset < job->window.length && job->window.length - offset >= 8) {
        memcpy(word, job->window.bytes + offset, 8);
        return 1;
    }
    return pages_read(&job->pages, object, word, 8);
}

/* Works for about `seconds`. Returns 1 if there is more to do, 0 if not, INTERRUPTED, or NO_MEMORY. */
int64_t heapx_tc_lists_slice(struct lists_job *job, double seconds)
{
    const double deadline = clock_now() + seconds;
    uint64_t links = 0;
    job->pages.interrupted = job->window.interrupted = 0;
    for (; job->list < job->list_count; job->list++, job->is_begun = 0) {
        const struct tc_free_list *list = &job->lists[job->list];
        struct tc_list_end *end = &job->ends[job->list];
        if (!job->is_begun) {
            if (list->start && list->head)
                (void) window_at(&job->window, list->start, 8);
            if (job->window.interrupted)
                return INTERRUPTED;
            job->next = list->head;
            job->is_begun = 1;
        }
        while (job->next && !end->problem) {
            const uint64_t object = job->next;
            uint8_t word[8];
            end->at = object;
            if (++links % LINKS_BETWEEN_CLOCKS == 0 && clock_now() > deadline)
                return 1;
            if (object & 7 || object >> (64 - KIND_SHIFT)) {
                end->problem = LIST_MISALIGNED;
            } else if (end->count >= list->most || job->objects.count >= job->most) {
                end->problem = LIST_LONG;
            } else if (!read_link(job, list, object, word)) {
                if (job->pages.interrupted)
                    return INTERRUPTED;
                end->problem = LIST_UNREADABLE;
            } else {
                uint64_t *found = grown_add(&job->objects, sizeof *found);
                if (!found)
                    return NO_MEMORY;
                *found = object << KIND_SHIFT | list->kind;
                end->count++;
                job->next = load_word(word, 8, job->swap);
            }
        }
    }
    return 0;
}

void heapx_tc_lists_sums(const struct lists_job *job, struct list_sums *out)
{
    *out = (struct list_sums) {.ended = job->list == job->list_count, .objects = job->objects.count};
}

/* Into an array that is as long as the sums say. */
void heapx_tc_lists_result(const struct lists_job *job, uint64_t *objects)
{
    grown_copy(&job->objects, sizeof *objects, objects, job->objects.count);
}

/* What heapx_sort has put in order, as addresses and kinds. */
void heapx_tc_lists_split(uint64_t *objects, uint64_t count, uint64_t *kinds)
{
    uint8_t *of = (uint8_t *) kinds;
    for (uint64_t i = 0; i < count; i++) {
        of[i] = objects[i] & ((1u << KIND_SHIFT) - 1);
        objects[i] >>= KIND_SHIFT;
    }
}
