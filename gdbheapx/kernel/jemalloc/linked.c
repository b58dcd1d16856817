/* Extents that are linked: the pairing heaps of unused extents and of slabs with a free region, and the rings beside them.

   In a heap (ph.h) a member's `prev` is its parent or the sibling before it, the root's `next` begins the list of those inserted since; in
   a ring (ql.h) a member's `next` leads to one whose `prev` leads back. The first contradiction ends a list. */
#include "extents.h"

#include <stdlib.h>

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
