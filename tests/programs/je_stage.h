/* What the jemalloc test programs share beside stage.h: jemalloc's own functions, wherever they come from (preloaded, linked or
   static), a record of blocks with their fate, and malloc_stats_print's JSON in memory that no heap holds. */

#ifndef JE_STAGE_H
#define JE_STAGE_H

#include "stage.h"
#include <dlfcn.h>
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>

/* jemalloc's public flags for mallocx(3). */
#define JE_ALIGN_LOG2(log2) (log2)
#define JE_TCACHE(index) (((index) + 2) << 8)
#define JE_NO_TCACHE JE_TCACHE(-1)
#define JE_ARENA(index) ((int)((index) + 1) << 20)

typedef int je_mallctl_t(const char *, void *, size_t *, void *, size_t);
typedef void je_stats_t(void (*)(void *, const char *), void *, const char *);

/* Weak: nothing need be linked. What is linked is found here, what is preloaded by dlsym. */
extern int mallctl(const char *, void *, size_t *, void *, size_t) __attribute__((weak));
extern void malloc_stats_print(void (*)(void *, const char *), void *, const char *) __attribute__((weak));
extern void *mallocx(size_t, int) __attribute__((weak));
extern void dallocx(void *, int) __attribute__((weak));
extern size_t nallocx(size_t, int) __attribute__((weak));

static je_mallctl_t *je_mallctl;
static je_stats_t *je_stats_print;
static void *(*je_mallocx)(size_t, int);
static void (*je_dallocx)(void *, int);
static size_t (*je_nallocx)(size_t, int);

static inline void *je_find(void *linked, const char *name)
{
    void *found = linked ? linked : dlsym(RTLD_DEFAULT, name);

    if (!found)
        stage_fail("jemalloc is neither linked nor preloaded");
    return found;
}

static void je_start(void)
{
    je_mallctl = (je_mallctl_t *)je_find((void *)mallctl, "mallctl");
    je_stats_print = (je_stats_t *)je_find((void *)malloc_stats_print, "malloc_stats_print");
    je_mallocx = (void *(*)(size_t, int))je_find((void *)mallocx, "mallocx");
    je_dallocx = (void (*)(void *, int))je_find((void *)dallocx, "dallocx");
    je_nallocx = (size_t(*)(size_t, int))je_find((void *)nallocx, "nallocx");
}

/* mallctl's string of a name with one index in it, as "arena.%u.purge". Neither allocates. */
static inline const char *je_name(const char *form, unsigned index)
{
    static __thread char name[64];

    snprintf(name, sizeof name, form, index);
    return name;
}

static inline void je_read(const char *name, void *value, size_t bytes)
{
    size_t length = bytes;

    if (je_mallctl(name, value, &length, NULL, 0) != 0 || length != bytes)
        stage_fail(name);
}

static inline void je_write(const char *name, void *value, size_t bytes)
{
    if (je_mallctl(name, NULL, NULL, value, bytes) != 0)
        stage_fail(name);
}

static inline unsigned je_new_arena(ssize_t dirty_decay_ms, ssize_t muzzy_decay_ms)
{
    unsigned arena;

    je_read("arenas.create", &arena, sizeof arena);
    je_write(je_name("arena.%u.dirty_decay_ms", arena), &dirty_decay_ms, sizeof dirty_decay_ms);
    je_write(je_name("arena.%u.muzzy_decay_ms", arena), &muzzy_decay_ms, sizeof muzzy_decay_ms);
    return arena;
}

/* jemalloc refreshes its own statistics only when told to. */
static inline void je_epoch(void)
{
    uint64_t epoch = 1;

    je_write("epoch", &epoch, sizeof epoch);
}

/* ------------------------------------------------------------------------------------------------ the record */

enum { JE_LIVE = 1, JE_CACHED = 2, JE_FREED = 3 };

#define JE_NO_ARENA UINT64_MAX

struct je_block {
    uint64_t address;
    uint64_t usable;    /* malloc_usable_size */
    uint64_t requested; /* what was asked for */
    uint64_t arena;     /* arenas.lookup, while it lived; JE_NO_ARENA where this jemalloc cannot say */
    uint64_t state;
};

#define JE_JSON_BYTES ((size_t)4 << 20)
#define JE_WORDS 4096

/* The record: this, then the JSON, then the blocks. tests/support/jemalloc_record.py reads it. */
struct je_record {
    uint64_t json_capacity, json_bytes;
    uint64_t print_buffer; /* where the text lay that malloc_stats_print handed over first; 0 before it did */
    uint64_t block_capacity;
    atomic_uint_fast64_t blocks;
    uint64_t words[JE_WORDS]; /* the program's own */
};

static struct je_record *je_record;
static char *je_json;
static struct je_block *je_blocks;

static inline void je_open_record(const char *path, size_t blocks)
{
    je_record = stage_record(path, sizeof *je_record + JE_JSON_BYTES + blocks * sizeof *je_blocks);
    je_record->json_capacity = JE_JSON_BYTES;
    je_record->block_capacity = blocks;
    je_json = (char *)(je_record + 1);
    je_blocks = (struct je_block *)(je_json + JE_JSON_BYTES);
}

static inline struct je_block *je_keep(void *memory, size_t requested)
{
    uint64_t number = atomic_fetch_add(&je_record->blocks, 1);
    struct je_block *block = je_blocks + number;
    size_t length = sizeof(unsigned);
    unsigned arena;

    if (!memory)
        stage_fail("out of memory");
    if (number >= je_record->block_capacity)
        stage_fail("the record is full");
    block->address = (uint64_t)(uintptr_t)memory;
    block->usable = malloc_usable_size(memory);
    block->requested = requested;
    block->arena = je_mallctl("arenas.lookup", &arena, &length, &memory, sizeof memory) == 0 ? arena : JE_NO_ARENA;
    block->state = JE_LIVE;
    memset(memory, 0x5a, requested < 64 ? requested : 64);
    return block;
}

/* Frees a block with mallocx's flags. The state is set first: from then on the address may be another block's. */
static inline void je_drop(struct je_block *block, int flags, uint64_t state)
{
    if (block->state != JE_LIVE)
        return;
    block->state = state;
    if (flags)
        je_dallocx((void *)(uintptr_t)block->address, flags);
    else
        free((void *)(uintptr_t)block->address);
}

/* ------------------------------------------------------------------------------------------------ its statistics */

struct je_text {
    int depth, quoted, park;
};

/* malloc_stats_print's write callback: keeps the text, and with `park` stays here for good once the document is closed,
   so that the memory around it is that of the figures. */
static void je_take_text(void *opaque, const char *piece)
{
    struct je_text *text = opaque;
    size_t length = strlen(piece), i;

    if (!je_record->json_bytes)
        je_record->print_buffer = (uint64_t)(uintptr_t)piece;
    if (je_record->json_bytes + length > je_record->json_capacity)
        stage_fail("the JSON is too long");
    memcpy(je_json + je_record->json_bytes, piece, length);
    je_record->json_bytes += length;
    for (i = 0; i < length; i++) {
        if (piece[i] == '"')
            text->quoted = !text->quoted;
        else if (!text->quoted && piece[i] == '{')
            text->depth++;
        else if (!text->quoted && piece[i] == '}' && --text->depth == 0 && text->park) {
            stage_ready(1);
            for (;;)
                stage_command();
        }
    }
}

static inline void je_print_stats(int park)
{
    struct je_text text = {0, 0, park};

    je_record->json_bytes = 0;
    je_stats_print(je_take_text, &text, "J");
}

#endif
