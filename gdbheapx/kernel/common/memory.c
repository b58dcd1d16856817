/* Memory of this process for tables, and threads of its own for the length of one slice of work. */
#define _GNU_SOURCE
#include "memory.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>

#define HUGE_BYTES ((size_t) 2 << 20)
#define LARGEST_PAGE ((size_t) 64 << 10)
#define STACK_BYTES (256u << 10)

static size_t reserved;     /* bytes of lazy_alloc() and what is built on it */

/* Room that is reserved is no memory that is used, though RLIMIT_DATA counts it: the limit of own_memory.limit_look(), and no other, is
   higher by as much. Without a lock: who is overtaken by another thread does it again. */
static void count_reserved(size_t more, size_t less)
{
    const size_t change = (more + LARGEST_PAGE - 1) / LARGEST_PAGE * LARGEST_PAGE - (less + LARGEST_PAGE - 1) / LARGEST_PAGE * LARGEST_PAGE;
    size_t now = __atomic_add_fetch(&reserved, change, __ATOMIC_SEQ_CST), set;
    const char *own = getenv("GDBHEAPX_LIMITED");
    struct rlimit limit;
    if (!own || getrlimit(RLIMIT_DATA, &limit) || limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur < number_in(own))
        return;
    do {
        const rlim_t wanted = (rlim_t) number_in(own) + now;
        limit.rlim_cur = wanted < limit.rlim_max ? wanted : limit.rlim_max;
        setrlimit(RLIMIT_DATA, &limit);
        set = now;
        now = __atomic_load_n(&reserved, __ATOMIC_SEQ_CST);
    } while (now != set);
}

/* Bytes as they are mapped, and more by one huge page so that it can begin on one. */
static size_t mapped_bytes(size_t bytes)
{
    return bytes < HUGE_BYTES ? bytes + 1 : (bytes + HUGE_BYTES - 1) / HUGE_BYTES * HUGE_BYTES + HUGE_BYTES;
}

void *big_alloc(size_t bytes)
{
    const size_t whole = mapped_bytes(bytes);
    if (bytes < HUGE_BYTES)
        return calloc(1, whole);
    uint8_t *at = mmap(NULL, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED)
        return NULL;
    const size_t before = HUGE_BYTES - (size_t) (uintptr_t) at % HUGE_BYTES;
    munmap(at, before);
    if (before < HUGE_BYTES)
        munmap(at + before + whole - HUGE_BYTES, HUGE_BYTES - before);
    madvise(at + before, whole - HUGE_BYTES, MADV_HUGEPAGE);
    return at + before;
}

void big_free(void *memory, size_t bytes)
{
    if (memory && bytes >= HUGE_BYTES)
        munmap(memory, mapped_bytes(bytes) - HUGE_BYTES);
    else
        free(memory);
}

void *lazy_alloc(size_t bytes)
{
    const size_t whole = bytes ? bytes : 1;
    count_reserved(whole, 0);
    void *at = mmap(NULL, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at != MAP_FAILED)
        return at;
    count_reserved(0, whole);
    return NULL;
}

void *dense_alloc(size_t bytes)
{
    void *at = lazy_alloc(bytes);
    if (at && bytes >= HUGE_BYTES)
        madvise(at, bytes, MADV_HUGEPAGE);
    return at;
}

void *dense_grow(void *memory, size_t before, size_t bytes)
{
    if (!memory)
        return dense_alloc(bytes);
    before = before ? before : 1;
    const size_t whole = bytes ? bytes : 1;
    count_reserved(whole, before);
    void *at = mremap(memory, before, whole, MREMAP_MAYMOVE);
    if (at == MAP_FAILED) {
        count_reserved(before, whole);
        return NULL;
    }
    if (bytes >= HUGE_BYTES)
        madvise(at, bytes, MADV_HUGEPAGE);
    return at;
}

void lazy_free(void *memory, size_t bytes)
{
    if (memory) {
        munmap(memory, bytes ? bytes : 1);
        count_reserved(0, bytes ? bytes : 1);
    }
}

/* The pointer is one to items of any type: its bytes are copied. */
static int put_room(void *at, void *more, uint64_t *room, uint64_t wanted)
{
    if (!more)
        return 0;
    memcpy(at, &more, sizeof more);
    *room = wanted;
    return 1;
}

int grow_room(void *at, uint64_t *room, size_t size)
{
    const uint64_t wanted = *room ? 2 * *room : 256;
    void *items;
    memcpy(&items, at, sizeof items);
    return put_room(at, realloc(items, (size_t) wanted * size), room, wanted);
}

int grow_dense_room(void *at, uint64_t *room, size_t size)
{
    const uint64_t wanted = *room + *room / 2 + 4096;
    void *items;
    memcpy(&items, at, sizeof items);
    return put_room(at, dense_grow(items, (size_t) *room * size, (size_t) wanted * size), room, wanted);
}

void *grown_add(struct grown *grown, size_t size)
{
    if (!has_room(&grown->items, grown->count, &grown->room, size))
        return NULL;
    return (uint8_t *) grown->items + size * grown->count++;
}

uint64_t grown_copy(const struct grown *grown, size_t size, void *to, uint64_t room)
{
    if (room && grown->count)
        memcpy(to, grown->items, (size_t) (room < grown->count ? room : grown->count) * size);
    return grown->count;
}

static uint64_t *find_slot(const struct address_set *set, uint64_t address)
{
    uint64_t at = (address * 0x9E3779B97F4A7C15u >> 20) & (set->room - 1);
    while (set->slots[at] && set->slots[at] != address)
        at = (at + 1) & (set->room - 1);
    return &set->slots[at];
}

int address_set_add(struct address_set *set, uint64_t address)
{
    if (2 * (set->count + 1) > set->room) {
        struct address_set more = {NULL, set->room ? 2 * set->room : 256, set->count};
        more.slots = calloc((size_t) more.room, sizeof *more.slots);
        if (!more.slots)
            return NO_MEMORY;
        for (uint64_t i = 0; i < set->room; i++)
            if (set->slots[i])
                *find_slot(&more, set->slots[i]) = set->slots[i];
        free(set->slots);
        *set = more;
    }
    uint64_t *slot = find_slot(set, address);
    if (*slot)
        return 0;
    *slot = address;
    set->count++;
    return 1;
}

/* The threads take no signal: all of them stay with the program's own. */
void threads_run(thread_work work, void *items, size_t item_bytes, unsigned count)
{
    pthread_t threads[MAX_THREADS];
    pthread_attr_t attributes;
    sigset_t all, before;
    char *first = items;
    unsigned started = 1;
    count = count < MAX_THREADS ? count : MAX_THREADS;
    if (count > 1 && !pthread_attr_init(&attributes)) {
        pthread_attr_setstacksize(&attributes, STACK_BYTES);
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        while (started < count && !pthread_create(&threads[started], &attributes, work, first + started * item_bytes))
            started++;
        pthread_sigmask(SIG_SETMASK, &before, NULL);
        pthread_attr_destroy(&attributes);
    }
    if (count)
        work(first);
    while (--started)
        pthread_join(threads[started], NULL);
}
