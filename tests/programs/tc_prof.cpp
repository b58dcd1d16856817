/* tc_prof RECORD

   Blocks from two calls, of which tcmalloc samples some (TCMALLOC_SAMPLE_PARAMETER); then RECORD.heap has what MallocExtension's own
   GetHeapSample says. */

#include "stage.h"
#include <gperftools/malloc_extension.h>
#include <stdio.h>
#include <string>

static void *blocks[20000];

__attribute__((noinline)) static void small(int from)
{
    for (int i = from; i < 10000; i++)
        blocks[i] = malloc(1000 + i % 7);
}

__attribute__((noinline)) static void large(int from)
{
    for (int i = from; i < 20000; i++)
        blocks[i] = malloc(3000);
}

int main(int argc, char **argv)
{
    if (argc < 2)
        stage_fail("usage: tc_prof RECORD");
    stage_record(argv[1], 4096);
    small(0);
    large(10000);
    for (int i = 0; i < 20000; i += 2)
        free(blocks[i]);
    std::string text;
    text.reserve(1 << 20);
    MallocExtension::instance()->GetHeapSample(&text);
    FILE *file = fopen((std::string(argv[1]) + ".heap").c_str(), "w");
    fwrite(text.data(), 1, text.size(), file);
    fclose(file);
    (void)stage_deepen;
    stage_ready(1);
    while (stage_command() > 0)
        stage_ready(1);
}
