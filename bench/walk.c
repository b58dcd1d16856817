/* walk CORE: the yardstick. Maps a kernel core of `frag` and follows the size fields of its heaps, adding up used and free: the
   least that any reader of a heap must do. Prints "chunks used_bytes free_bytes seconds"; the time is that of the loop, from a
   fresh mapping, page faults included. Knows the layout of glibc 2.35 to 2.41 on x86-64. */

#include <elf.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define HEAP ((uint64_t)64 << 20)

static uint64_t chunks, used, freed;

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void walk(const char *from, const char *end)
{
    uint64_t n = 0, in_use = 0, size = *(const uint64_t *)(from + 8);

    while ((size & ~7ULL) >= 32 && from + (size & ~7ULL) + 16 <= end) {
        uint64_t next;

        from += size & ~7ULL;
        next = *(const uint64_t *)(from + 8);
        if (next & 1)
            in_use += size & ~7ULL;
        else
            freed += size & ~7ULL;
        size = next;
        n++;
    }
    chunks += n;
    used += in_use;
}

int main(int argc, char **argv)
{
    int fd = argc == 2 ? open(argv[1], O_RDONLY) : -1;
    struct stat info;
    const char *core;
    const Elf64_Ehdr *header;
    const Elf64_Phdr *segment;
    double start;
    int i;

    if (fd < 0 || fstat(fd, &info) != 0)
        return 2;
    core = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (core == MAP_FAILED)
        return 2;
    header = (const Elf64_Ehdr *)core;
    segment = (const Elf64_Phdr *)(core + header->e_phoff);
    start = now();
    for (i = 0; i < header->e_phnum; i++) {
        const char *bytes = core + segment[i].p_offset;
        const uint64_t *words = (const uint64_t *)bytes;

        if (segment[i].p_type != PT_LOAD || segment[i].p_flags != (PF_R | PF_W) || segment[i].p_filesz < 4096)
            continue;
        if (words[0] == 0 && words[1] == 0x291) {
            walk(bytes, bytes + segment[i].p_filesz); /* the main heap begins with the thread cache */
        } else if (segment[i].p_vaddr % HEAP == 0) {
            uint64_t place = 0;

            while (place < segment[i].p_filesz) { /* full neighbours share a mapping */
                const uint64_t *heap = (const uint64_t *)(bytes + place);

                if (heap[0] % HEAP != 0x30 || heap[2] > HEAP)
                    break;
                walk(bytes + place + (heap[0] == segment[i].p_vaddr + place + 0x30 ? 0x8d0 : 0x30), bytes + place + heap[2]);
                place += HEAP;
            }
        }
    }
    printf("%llu %llu %llu %.6f\n", (unsigned long long)chunks, (unsigned long long)used, (unsigned long long)freed, now() - start);
    return 0;
}
