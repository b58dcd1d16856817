/* tcmalloc's lists of free objects: each object's first word is the address of the next one, 0 at the end (src/linked_list.h). */
#include "common/heapx.h"
#include "gdbheapx_tcmalloc.h"

#include <stdlib.h>

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
