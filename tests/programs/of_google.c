/* A malloc of its own, and lines that google's tcmalloc prints: known by these, whoever stripped it. */

#include "stage.h"
#include <stdio.h>

const char *volatile lines[] = {
    "MALLOC: + %12u (%7.1f MiB) Bytes in page heap freelist\n",
    "MALLOC: + %12u (%7.1f MiB) Bytes in per-CPU cache freelist\n",
};
static char memory[1 << 24];
static size_t used;

void *malloc(size_t size)
{
    const size_t begin = __atomic_fetch_add(&used, (size + 31) & ~(size_t)15, __ATOMIC_SEQ_CST);

    return begin + size + 32 > sizeof memory ? NULL : memory + (15 & -(uintptr_t)memory) + begin;
}

void free(void *block)
{
    (void)block;
}

void *calloc(size_t count, size_t size)
{
    return malloc(count * size);
}

void *realloc(void *block, size_t size)
{
    char *made = malloc(size), *old = block;
    size_t i;

    for (i = 0; made && old && i < size && old + i < memory + sizeof memory; i++)
        made[i] = old[i];
    return made;
}

int main(int argc, char **argv)
{
    char *block = malloc(100);

    if (argc < 2)
        stage_fail("usage: of_google RECORD");
    (void)stage_record(argv[1], 4096);
    (void)stage_deepen;
    block[0] = lines[0][0];
    stage_ready(1);
    while (stage_command() > 0)
        stage_ready(1);
    return 0;
}
