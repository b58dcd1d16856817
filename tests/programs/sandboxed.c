/* sandboxed RECORD PATH: may neither make PATH, a folder, nor a userfaultfd (its seccomp filter refuses both), and would like to.

   A second process that shares its memory sees when somebody writes to the stack of the first, and puts a call of mkdir where the system
   calls of the C library are. It ends with the first. x86-64 alone. */

#include "stage.h"
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#define WATCHED 2048
#define PAGE 4096

static const unsigned char call_and_return[] = {0x0f, 0x05, 0xc3};
static const unsigned char payload[] = {0xb8, 83, 0, 0, 0, 0x48, 0x8d, 0x3d, 0x20, 0, 0, 0, 0xbe, 0xff, 1, 0, 0, 0x0f, 0x05, 0xc3};
/* mov $SYS_mkdir, %eax; lea 0x20(%rip), %rdi; mov $0777, %esi; syscall; ret */
static unsigned char *page, second_stack[1 << 16];
static volatile unsigned long *below;

static int watch(void *unused)
{
    static unsigned long before[WATCHED];

    (void)unused;
    prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    for (unsigned i = 0; i < WATCHED; i++)
        before[i] = below[i];
    for (;;)
        for (unsigned i = 0; i < WATCHED; i++)
            if (below[i] != before[i]) {
                mprotect(page, PAGE, PROT_READ | PROT_WRITE | PROT_EXEC);
                memcpy(page, payload, sizeof payload);
                for (volatile unsigned long wait = 0; wait < 20000000; wait++)
                    ;
                memcpy(page, call_and_return, sizeof call_and_return);
                mprotect(page, PAGE, PROT_READ | PROT_EXEC);
                for (unsigned j = 0; j < WATCHED; j++)
                    before[j] = below[j];
            }
    return 0;
}

int main(int argc, char **argv)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mkdir, 2, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mkdirat, 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_userfaultfd, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof code / sizeof code[0], code};
    int file;

    if (argc != 3)
        stage_fail("usage: sandboxed RECORD PATH");
    stage_record(argv[1], 8);
    file = open("libc-sandboxed.so", O_RDWR | O_CREAT | O_TRUNC, 0700);
    if (file < 0 || ftruncate(file, PAGE) != 0)
        stage_fail("the file of code cannot be made");
    page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
    if (page == MAP_FAILED)
        stage_fail("the file of code cannot be mapped");
    memset(page, 0x90, PAGE);
    memcpy(page, call_and_return, sizeof call_and_return);
    strncpy((char *)page + 12 + 0x20, argv[2], PAGE - 64);
    mprotect(page, PAGE, PROT_READ | PROT_EXEC);
    munmap((void *)getauxval(AT_SYSINFO_EHDR), 2 * PAGE); /* its code would be taken before that page */
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
        stage_fail("the filter is not taken");
    if (mkdir(argv[2], 0777) == 0)
        stage_fail("the filter does not refuse");
    stage_deepen();
    below = (unsigned long *)__builtin_frame_address(0) - WATCHED - 64;
    if (clone(watch, second_stack + sizeof second_stack, CLONE_VM | SIGCHLD, NULL) < 0)
        stage_fail("clone");
    stage_ready(1);
    for (;;)
        syscall(SYS_pause);
}
