/* mimalloc's lists of free blocks: linked by the first words of their members, of one page, or of all pages of a heap (page.c, free.c).
   What a list leads to is believed only where it is a block of its page; a list with more members than the page has blocks is a ring. */
#include "common/heapx.h"
#include "gdbheapx_mimalloc.h"

#include <stdlib.h>

#define MEMBERS_BETWEEN_CLOCKS 4096u
#define WHOLE_BYTES (64u << 10)     /* of a page whose blocks are read at once: a list of small ones leads all over it */
#define SMALL_BYTES 2048u

struct free_lists {
    const struct mi_free_list *lists;      /* the caller's, as are the pages */
    const struct mi_list_page *blocks;
    uint64_t count, page_count;
    uint64_t place;                     /* the list at hand */
    uint64_t member;                    /* the next member of it; it is begun where `is_open` */
    int is_open;
    uint64_t most;                      /* of members of a list of all pages */
    struct mi_list_end *ends;
    uint64_t *shared;                   /* by page */
    struct grown found;                 /* address | kind */
    struct pages pages;
    uint64_t whole, whole_length;   /* the page whose blocks are at hand, and how many bytes of them */
    uint8_t bytes[WHOLE_BYTES];
};

void heapx_mimalloc_lists_free(struct free_lists *job)
{
    if (!job)
        return;
    pages_close(&job->pages);
    free(job->ends);
    free(job->shared);
    free(job->found.items);
    free(job);
}

/* `lists` and `pages` stay the caller's. NULL: no memory. */
struct free_lists *heapx_mimalloc_lists_new(const struct source *source, const struct mi_free_list *lists, uint64_t count,
                                            const struct mi_list_page *pages, uint64_t page_count)
{
    struct free_lists *job = calloc(1, sizeof *job);
    if (!job)
        return NULL;
    job->lists = lists;
    job->count = count;
    job->blocks = pages;
    job->page_count = page_count;
    for (uint64_t i = 0; i < page_count; i++)
        job->most += pages[i].blocks;
    pages_open(&job->pages, source, 0);
    job->whole = page_count;
    job->ends = calloc((size_t) count + 1, sizeof *job->ends);
    job->shared = calloc((size_t) page_count + 1, sizeof *job->shared);
    if (!job->ends || !job->shared) {
        heapx_mimalloc_lists_free(job);
        return NULL;
    }
    return job;
}

static int is_block(const struct mi_list_page *page, uint64_t address)
{
    const uint64_t lead = address - page->start;
    return address >= page->start && page->block_bytes && lead % page->block_bytes == 0 && lead / page->block_bytes < page->blocks;
}

/* The page that has a block at this address; page_count: none. */
static uint64_t page_of(const struct free_lists *job, const struct mi_free_list *list, uint64_t address)
{
    if (list->page < job->page_count)
        return is_block(&job->blocks[list->page], address) ? list->page : job->page_count;
    const uint64_t low = rows_up_to(job->blocks, job->page_count, sizeof *job->blocks, address);
    return low && is_block(&job->blocks[low - 1], address) ? low - 1 : job->page_count;
}

static uint64_t decoded(const struct mi_free_list *list, uint64_t value)
{
    if (!list->is_encoded)
        return value;
    const uint64_t less = value - list->key;
    const unsigned turn = (unsigned) (list->key & 63);
    return (turn ? less >> turn | less << (64 - turn) : less) ^ list->turn;
}

/* The first word of a block of this page. 0: it cannot be read, or reading was interrupted. */
static int read_link(struct free_lists *job, uint64_t page, uint64_t address, uint8_t *to)
{
    const struct mi_list_page *blocks = &job->blocks[page];
    if (blocks->block_bytes > SMALL_BYTES || blocks->blocks * blocks->block_bytes > WHOLE_BYTES)
        return pages_read(&job->pages, address, to, 8);
    if (job->whole != page) {
        const int64_t got = source_read_near(job->pages.source, &job->pages.entries, blocks->start, job->bytes,
                                             blocks->blocks * blocks->block_bytes, 0);
        if (got < 0) {
            job->pages.interrupted = 1;
            return 0;
        }
        job->whole = page;
        job->whole_length = (uint64_t) got;
    }
    if (address - blocks->start + 8 > job->whole_length)
        return pages_read(&job->pages, address, to, 8);
    memcpy(to, job->bytes + (address - blocks->start), 8);
    return 1;
}

/* One member of the list at hand: 1; the list ends here: 0; INTERRUPTED; NO_MEMORY. */
static int step(struct free_lists *job)
{
    const struct mi_free_list *list = &job->lists[job->place];
    struct mi_list_end *end = &job->ends[job->place];
    const uint64_t address = job->member;
    uint8_t bytes[8];
    if (address == list->null || !address)
        return 0;
    const uint64_t page = page_of(job, list, address);
    end->at = address;
    if (page == job->page_count)
        end->problem = LIST_STRAY;
    else if (end->members >= (list->page < job->page_count ? job->blocks[page].blocks : job->most))
        end->problem = LIST_LONG;
    else if (!read_link(job, page, address, bytes)) {
        if (job->pages.interrupted)
            return INTERRUPTED;
        end->problem = LIST_UNREADABLE;
    }
    if (end->problem)
        return 0;
    uint64_t *found = grown_add(&job->found, sizeof *found);
    if (!found)
        return NO_MEMORY;
    *found = address | list->kind;
    end->members++;
    if (list->page >= job->page_count)
        job->shared[page]++;
    job->member = decoded(list, load_word(bytes, 8, is_swapped(1)));
    return 1;
}

/* Works for about `seconds`. Returns 1 if there is more to do, 0 if not, INTERRUPTED, or NO_MEMORY. */
int64_t heapx_mimalloc_lists_slice(struct free_lists *job, double seconds)
{
    const double deadline = clock_now() + seconds;
    uint64_t steps = 0;
    job->pages.interrupted = 0;
    while (job->place < job->count) {
        if (!job->is_open) {
            job->is_open = 1;
            job->member = job->lists[job->place].head;
        }
        const int state = step(job);
        if (state < 0)
            return state;
        if (!state) {
            job->is_open = 0;
            job->place++;
        }
        if (++steps % MEMBERS_BETWEEN_CLOCKS == 0 && clock_now() > deadline)
            return 1;
    }
    return 0;
}

/* How many members there are, and lists that were followed. */
uint64_t heapx_mimalloc_lists_count(const struct free_lists *job, uint64_t *lists)
{
    *lists = job->place;
    return job->found.count;
}

void heapx_mimalloc_lists_result(const struct free_lists *job, uint64_t *found, struct mi_list_end *ends, uint64_t *shared)
{
    grown_copy(&job->found, sizeof *found, found, job->found.count);
    if (job->place)
        memcpy(ends, job->ends, (size_t) job->place * sizeof *ends);
    if (job->page_count)
        memcpy(shared, job->shared, (size_t) job->page_count * sizeof *shared);
}

/* Takes the kinds out of the members, once they are sorted; how many are there more than once. */
uint64_t heapx_mimalloc_lists_split(uint64_t *found, uint64_t count, uint8_t *kinds)
{
    const uint64_t mask = (1u << LIST_KIND_BITS) - 1;
    uint64_t twice = 0;
    for (uint64_t i = 0; i < count; i++) {
        kinds[i] = (uint8_t) (found[i] & mask);
        found[i] &= ~mask;
        twice += i && found[i] == found[i - 1];
    }
    return twice;
}
