/* je_shapes RECORD leak|fragment|round|freed|both

   What a heap looks like to `report`:
     leak      40 MB in blocks of 340 bytes that nobody frees
     fragment  64 MB in blocks of 200 bytes, of which each twentieth is kept: no slab becomes empty
     round     48 MB in blocks of 16,384 bytes that nobody frees: a page more for each in cache-oblivious builds
     freed     48 MB in blocks of 500 to 6,500 bytes, of which each fortieth is kept
     both      40 MB by malloc, and 24 MB by glibc's own functions beside whatever owns malloc */

#include "stage.h"

#include <dlfcn.h>
#include <malloc.h>

#define MB ((size_t)1 << 20)

static void *kept(void *(*take)(size_t), size_t each, size_t total)
{
    void **list = NULL;
    size_t taken;

    for (taken = 0; taken < total; taken += each) {
        void **block = take(each);

        if (!block)
            stage_fail("no memory");
        memset(block, 1, each);
        *block = list;
        list = block;
    }
    return list;
}

static void fragment(void)
{
    size_t count = 64 * MB / 200, i;
    void **blocks = stage_pages(count * sizeof *blocks);

    for (i = 0; i < count; i++)
        memset(blocks[i] = malloc(200), 1, 200);
    for (i = 0; i < count; i++)
        if (i % 20)
            free(blocks[i]);
}

static void freed(void)
{
    enum { COUNT = 14000 };
    void **blocks = stage_pages(COUNT * sizeof *blocks);
    size_t i;

    for (i = 0; i < COUNT; i++) {
        size_t size = 500 + i * 37 % 6000;

        memset(blocks[i] = malloc(size), 1, size);
    }
    for (i = 0; i < COUNT; i++)
        if (i % 40)
            free(blocks[i]);
}

/* glibc's malloc, whatever was preloaded: jemalloc takes __libc_malloc as well, and up to glibc 2.33 the hook that glibc asks first. */
static void *glibc_malloc(size_t size)
{
    static void *(*found)(size_t);

    if (!found) {
        void **hook = dlsym(RTLD_DEFAULT, "__malloc_hook");

        if (hook)
            *hook = NULL;
        mallopt(M_PERTURB, 0); /* initialises, which only the hook does otherwise */
        *(void **)&found = dlsym(dlopen("libc.so.6", RTLD_LAZY), "malloc");
    }
    return found(size);
}

int main(int argc, char **argv)
{
    const char *mode = argc == 3 ? argv[2] : "";
    static void *volatile lists[2];

    if (argc != 3)
        stage_fail("usage: je_shapes RECORD leak|fragment|round|freed|both");
    if (!strcmp(mode, "fragment"))
        fragment();
    else if (!strcmp(mode, "freed"))
        freed();
    else if (!strcmp(mode, "round"))
        lists[0] = kept(malloc, 16384, 48 * MB);
    else
        lists[0] = kept(malloc, 340, 40 * MB);
    if (!strcmp(mode, "both"))
        lists[1] = kept(glibc_malloc, 3000, 24 * MB);
    stage_ready(1);
    for (;;)
        stage_command();
}
