#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#define SIZE (32ul << 20)
#define BLOCKS 16ul
int main(void)
{
    int fd = (int) syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | 1);
    char *memory = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *mapped = mmap(NULL, (BLOCKS + 1) << 21, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    char *blocks = (char *) (((uintptr_t) mapped + (2 << 20) - 1) & -(uintptr_t) (2 << 20));
    char *shared = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    char *small[64] = {0}, is_there[BLOCKS] = {0};
    uint64_t state = 88172645463325252ull;
    for (size_t at = 0; at < SIZE / 2; at += 4096)
        memset(memory + at, (int) (at >> 12), 100);
    printf("%d\n", fd);
    fflush(stdout);
    for (uint64_t i = 1;; i++) {
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;
        uint64_t *to = (uint64_t *) (memory + state % (SIZE / 2) / 8 * 8);
        *to = i;
        *(uint64_t *) (shared + state % 1000 * 8) = i;
        if (i % 50 == 0)
            madvise(memory + state % (SIZE / 4096) * 4096, 4096, MADV_DONTNEED);
        if (i % 100 == 0) {     /* with a block its page table goes */
            const size_t block = state / 64 % BLOCKS;
            if ((is_there[block] = !is_there[block]) == 0)
                madvise(blocks + (block << 21), 2 << 20, MADV_DONTNEED);
            else
                for (size_t at = 0; at < 2 << 20; at += 4096 * 8)
                    blocks[(block << 21) + at] = (char) (i | 1);
        }
        if (i % 77 == 0)
            memory[state % SIZE] = 1;
        if (i % 100 == 0) {
            char **one = &small[state % 64];
            char *to = mmap(NULL, 65536, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            if (*one && state & 64)
                *one = mremap(*one, 65536, 65536, MREMAP_MAYMOVE | MREMAP_FIXED, to);
            else
                munmap(to, 65536);
            if (*one && state & 64)
                ;
            else if (*one)
                munmap(*one, 65536), *one = NULL;
            else
                memset(*one = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), (int) i, 40000);
        }
        if (i % 5000 == 0) {
            pid_t child = fork();
            if (!child)
                _exit(0);
            waitpid(child, NULL, 0);
        }
        if (i % 20 == 0)
            usleep(200);
    }
}
