#define _GNU_SOURCE
#include <fcntl.h>
#include <link.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
static struct link_map fake;
int main(int argc, char **argv) {
    int file = open(argv[argc - 1], O_RDONLY);
    if (mmap((void *)0x10000000000UL, 0x40000, PROT_READ, MAP_PRIVATE | MAP_FIXED, file, 0) == MAP_FAILED)
        return 1;
    struct link_map *last = _r_debug.r_map;
    while (last->l_next)
        last = last->l_next;
    fake.l_addr = 0x10000000000UL;
    fake.l_name = strdup(argv[argc - 1]);
    fake.l_prev = last;
    last->l_next = &fake;
    puts("ready");
    fflush(stdout);
    pause();
}
