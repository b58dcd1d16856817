/* Vectors of 64 bytes that are full, not full, or emptied, and pairs of blocks; behind many of them a block that is lost. It writes down each
   block with what became of it. */
#include "stage.h"

#include <cstdio>
#include <cstdlib>
#include <utility>
#include <vector>

enum { EACH = 1000, LONGS = 8 };

static std::vector<std::vector<long>> full, part, emptied;
static std::vector<std::pair<char *, char *>> pairs;
static FILE *told;

static void tell(const char *how, const void *block)
{
    fprintf(told, "%s %p\n", how, block);
}

static void *filled(void)
{
    void *block = malloc(LONGS * sizeof(long));
    memset(block, 1, LONGS * sizeof(long));
    return block;
}

__attribute__((noinline)) static void lose(void)
{
    tell("lost", filled());
}

__attribute__((noinline)) static void make(std::vector<std::vector<long>> &where, const char *how, size_t count)
{
    where.emplace_back();
    where.back().reserve(LONGS);
    where.back().resize(count);
    tell(how, where.back().data());
    lose();
}

int main(int, char **arguments)
{
    char path[4096];

    snprintf(path, sizeof path, "%s.told", arguments[1]);
    told = fopen(path, "w");
    full.reserve(EACH);
    part.reserve(EACH);
    emptied.reserve(EACH);
    pairs.reserve(EACH);
    for (int i = 0; i < EACH; i++) {
        make(full, "full", LONGS);
        make(part, "part", LONGS / 2);
        make(emptied, "emptied", 0);
        char *one = (char *)filled(), *other = (char *)filled();
        pairs.emplace_back(one, other);
        tell("pair", one);
        tell("pair", other);
    }
    fclose(told);
    stage_deepen();
    stage_forget_vectors();
    puts("ready");
    fflush(stdout);
    return getchar() == 0;
}
