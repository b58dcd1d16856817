/* Preloaded: a read of an empty pipe that a worker of io_uring waits in, a thread of the process that never leaves the kernel. Where the
   kernel makes no ring the program goes on without. */
#include <linux/io_uring.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

__attribute__((constructor)) static void begin(void)
{
    struct io_uring_params given;
    struct io_uring_sqe *entry;
    static char byte;
    char *ring;
    int file, ends[2];

    memset(&given, 0, sizeof given);
    file = (int)syscall(SYS_io_uring_setup, 1, &given);
    if (file < 0 || pipe(ends))
        return;
    ring = mmap(NULL, given.sq_off.array + sizeof(unsigned), PROT_READ | PROT_WRITE, MAP_SHARED, file, IORING_OFF_SQ_RING);
    entry = mmap(NULL, sizeof *entry, PROT_READ | PROT_WRITE, MAP_SHARED, file, IORING_OFF_SQES);
    if (ring == MAP_FAILED || (void *)entry == MAP_FAILED)
        return;
    entry->opcode = IORING_OP_READ;
    entry->flags = IOSQE_ASYNC;
    entry->fd = ends[0];
    entry->addr = (unsigned long)&byte;
    entry->len = 1;
    *(unsigned *)(ring + given.sq_off.array) = 0;
    __atomic_store_n((unsigned *)(ring + given.sq_off.tail), 1, __ATOMIC_RELEASE);
    syscall(SYS_io_uring_enter, file, 1, 0, 0, NULL, 0);
}
