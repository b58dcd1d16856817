/* Blocks that nothing points to but a disguised pointer in static data: with a number in the upper bits, moved up by 16 bits, at an odd
   place, or mangled as glibc mangles what longjmp and atexit return to. Records: evidence, address. */
#include "stage.h"
#include <stdio.h>

#define EACH 100

static char buffer[64 << 10];
static uint64_t numbered[EACH], moved[EACH], mangled[EACH];
static _Alignas(8) unsigned char odd[EACH * 8 + 8];

static uint64_t mangle(uint64_t value)
{
#if defined __x86_64__
    __asm__("xorq %%fs:0x30, %0\n rolq $17, %0" : "+r"(value));
#endif
    return value;
}

/* Address of a new block, known to this function and the record alone. */
__attribute__((noinline)) static uint64_t block(FILE *record, const char *evidence)
{
    void *made = calloc(1, 200);

    fprintf(record, "%s %p\n", evidence, made);
    return (uint64_t)made;
}

__attribute__((noinline)) static void make(FILE *record)
{
    for (int i = 0; i < EACH; i++) {
        uint64_t number;

        numbered[i] = block(record, "masked") | 0xabcull << 48;
        moved[i] = block(record, "masked") << 16;
        number = block(record, "unaligned");
        memcpy(odd + 3 + i * 8, &number, 8);
#if defined __x86_64__
        mangled[i] = mangle(block(record, "mangled"));
#endif
        block(record, "none");
    }
}

int main(int argc, char **argv)
{
    FILE *record = argc > 1 ? fopen(argv[1], "w") : NULL;
    volatile char *last;

    if (!record)
        stage_fail("the record file cannot be made");
    setvbuf(record, buffer, _IOFBF, sizeof buffer);
    make(record);
    fclose(record);
    last = malloc(200);
    stage_deepen();
    stage_forget_vectors();
    stage_ready(1);
    stage_command();
    last[0] = 1;
    return numbered[0] + moved[0] + mangled[0] + odd[0] == 1;
}
