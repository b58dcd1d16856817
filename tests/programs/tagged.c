/* tagged RECORD TAG

   A chain of CHAIN blocks that a global variable holds, every pointer with TAG (hex) in its top byte, or as malloc gave it where TAG is 0;
   and LOST blocks that nothing holds. Where the processor ignores the top byte the chain is walked by its tagged pointers. */

#include "stage.h"
#include <malloc.h>

#define CHAIN 1000
#define LOST 100

struct block {
    struct block *next;
    uint64_t number;
    char rest[56];
};

struct record {
    uint64_t chain, lost, first, last_lost, walked; /* pointers as they are stored */
    uint64_t usable[3];                             /* of 24, 72 and 200,000 bytes */
};

static struct block *volatile held;

static struct block *tagged(void *block, uint64_t tag)
{
    return (struct block *)((uintptr_t)block | tag << 56);
}

__attribute__((noinline)) static void fill(struct record *record, uint64_t tag)
{
    unsigned i;

    for (i = 0; i < CHAIN; i++) {
        struct block *block = malloc(sizeof *block);

        block->next = held;
        block->number = i;
        held = tagged(block, tag);
    }
    for (i = 0; i < LOST; i++) {
        char *volatile lost = malloc(200);

        memset(lost, 1, 200);
        record->last_lost = (uintptr_t)lost ^ UINT64_MAX;
    }
}

__attribute__((noinline)) static void measure(struct record *record)
{
    static const size_t sizes[3] = {24, 72, 200000};
    unsigned i;

    for (i = 0; i < 3; i++) {
        void *block = malloc(sizes[i]);

        record->usable[i] = malloc_usable_size(block);
        free(block);
    }
}

__attribute__((noinline)) static uint64_t walk(void)
{
    uint64_t walked = 0;
#ifdef __aarch64__
    const struct block *block;

    for (block = held; block; block = block->next)
        walked++;
#endif
    return walked;
}

int main(int argc, char **argv)
{
    struct record *record;

    if (argc != 3)
        stage_fail("usage: tagged RECORD TAG");
    record = stage_record(argv[1], sizeof *record);
    measure(record);
    fill(record, strtoull(argv[2], NULL, 16));
    record->walked = walk();
    record->first = (uintptr_t)held;
    record->chain = CHAIN;
    record->lost = LOST;
    stage_deepen();
    stage_forget_vectors();
    stage_ready(1);
    for (;;)
        stage_command();
}
