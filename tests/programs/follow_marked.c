#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#define SIZE (16ul << 20)
int main(void)
{
    int fd = (int) syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | 1);
    char *memory = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    uint64_t api[3] = {0xaa, 1 << 13 | 1 << 15}, range[4] = {(uintptr_t) memory, SIZE, 2}, piece[3] = {(uintptr_t) memory, SIZE, 1};
    for (size_t at = 0; at < SIZE / 4; at += 4096)
        memory[at] = 1;
    int failed = fd < 0 || ioctl(fd, 0xc018aa3f, api) || ioctl(fd, 0xc020aa00, range) || ioctl(fd, 0xc018aa06, piece);
    getchar();      /* what it takes of memory is there by then */
    for (;;) {
        printf("%d %lu\n", failed, (unsigned long) (uintptr_t) memory);
        fflush(stdout);
        if (getchar() < 0)
            return 0;
        char *to = mmap(NULL, SIZE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        memory = mremap(memory, SIZE, SIZE, MREMAP_MAYMOVE | MREMAP_FIXED, to);
        close(fd);
    }
}
