/* je_inside RECORD MB [LIBRARY]

   A jemalloc of the program's own, linked in from libjemalloc.a: MB MiB are taken from it, half of them are freed again. JE is what stands before its
   public names (support/jemalloc_inside.py renames them, as configure --with-jemalloc-prefix would); nothing if it is the process's malloc. With LIBRARY the same is
   done in a shared object that is loaded at run time, and the program has no jemalloc. Compiled with JE_LIBRARY it is that object; with JE_CONF it has
   a malloc_conf under the public prefix. With JE_ARENA half of it comes from an arena that arenas.create made. */

#ifdef JE_LIBRARY
#include <stddef.h>
#else
#include "stage.h"
#include <dlfcn.h>
#endif

#define JOINED_(prefix, name) prefix##name
#define JOINED(prefix, name) JOINED_(prefix, name)
#ifndef JE
#define JE
#endif

#define BLOCK 20000

#ifdef JE_LOADER
static void (*inside)(size_t);
#else
extern void *JOINED(JE, malloc)(size_t);
extern void JOINED(JE, free)(void *);
extern void *JOINED(JE, mallocx)(size_t, int);
extern void JOINED(JE, dallocx)(void *, int);
extern int JOINED(JE, mallctl)(const char *, void *, size_t *, void *, size_t);
#ifdef JE_CONF
const char *JOINED(JE, malloc_conf) = JE_CONF;
#endif

static int arena_flags(void)
{
#ifdef JE_ARENA
    unsigned arena = 0;
    size_t length = sizeof arena;

    if (JOINED(JE, mallctl)("arenas.create", &arena, &length, NULL, 0) != 0)
        stage_fail("arenas.create");
    return (int)(arena + 1) << 20 | (-1 + 2) << 8; /* MALLOCX_ARENA, MALLOCX_TCACHE_NONE */
#else
    return 0;
#endif
}

void inside(size_t mb)
{
    static void *blocks[1 << 16];
    size_t count = (mb << 20) / BLOCK, i;
    int flags = arena_flags();

    for (i = 0; i < count; i++) {
        blocks[i] = flags ? JOINED(JE, mallocx)(BLOCK, flags) : JOINED(JE, malloc)(i % 8 ? BLOCK : 500);
        for (size_t at = 0; at < (i % 8 || flags ? BLOCK : 500); at += 4096)
            ((volatile char *)blocks[i])[at] = 1;
    }
    for (i = 0; i < count; i += 2) {
        if (flags)
            JOINED(JE, dallocx)(blocks[i], flags);
        else
            JOINED(JE, free)(blocks[i]);
    }
}
#endif

#ifndef JE_LIBRARY
int main(int argc, char **argv)
{
    if (argc < 3)
        stage_fail("usage: je_inside RECORD MB [LIBRARY]");
    stage_record(argv[1], 8);
#ifdef JE_LOADER
    {
        void *library = argc == 4 ? dlopen(argv[3], RTLD_NOW) : NULL;

        if (!library)
            stage_fail(dlerror());
        *(void **)&inside = dlsym(library, "inside");
    }
#endif
    inside((size_t)atoi(argv[2]));
    stage_ready(1);
    for (;;)
        stage_command();
}
#endif
