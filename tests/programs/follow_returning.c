#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#define SIZE 65536ul
int main(void)
{
    int fd = (int) syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | 1);
    char *stays = mmap(NULL, 6 * SIZE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), *away = stays + 4 * SIZE;
    mprotect(stays, 2 * SIZE, PROT_READ | PROT_WRITE);
    memset(stays, 1, 2 * SIZE);
    mremap(stays + SIZE, SIZE, SIZE, MREMAP_MAYMOVE | MREMAP_FIXED, away);
    printf("%d %lu\n", fd, (unsigned long) stays);
    fflush(stdout);
    getchar();
    mremap(away, SIZE, SIZE, MREMAP_MAYMOVE | MREMAP_FIXED, stays + SIZE);
    printf("back\n");
    fflush(stdout);
    getchar();
}
