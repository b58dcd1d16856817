/* filtered RECORD RULE [sleep | exec PROGRAM ARGUMENT...]

   Makes a heap with free pages in it, then puts itself under seccomp, and waits for commands: `c` counts in the record, `t` calls
   malloc_trim(0) itself. With `sleep` it waits in clock_nanosleep instead, and says so each time that this ends with EINTR. With `exec` it runs PROGRAM instead,
   which then stands under the rule from its first instruction on.

   RULE: strict (mode 1); allow (mode 2, everything allowed); kill-NAME, trap-NAME, errno-NAME, zero-NAME (fails with no error), trace-NAME,
   notify-NAME, log-NAME for the system call NAME; dontneed (kills for madvise with MADV_DONTNEED), other-advice (kills for madvise with any
   other advice), long (kills for madvise of 1 MiB or more), kill-high-brk (kills for brk to 2^40 or more), list (a container's profile:
   what is not listed fails with EPERM), list-kill (the same, and it kills), older (a filter that kills for madvise below one that allows
   everything), beside (the main thread is killed for madvise, a second thread that waits in pause is not), none. */

#include "stage.h"
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <malloc.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <time.h>

#define BLOCKS 6000
#ifdef __aarch64__
#define MACHINE AUDIT_ARCH_AARCH64
#else
#define MACHINE AUDIT_ARCH_X86_64
#endif
#define COUNT(list) (sizeof(list) / sizeof((list)[0]))

struct record { uint64_t counted, returned; };

static struct record *record;
static char *blocks[BLOCKS];

static const struct { const char *name; unsigned number; } names[] = {
    {"madvise", SYS_madvise}, {"brk", SYS_brk}, {"munmap", SYS_munmap}, {"mmap", SYS_mmap}, {"mprotect", SYS_mprotect},
    {"futex", SYS_futex}, {"restart_syscall", SYS_restart_syscall}, {"clone3", SYS_clone3}, {"personality", SYS_personality},
};

/* What an ordinary server needs, as a container's profile lists it. */
static const unsigned listed[] = {
    SYS_read, SYS_write, SYS_close, SYS_fstat, SYS_lseek, SYS_mmap, SYS_mprotect, SYS_munmap, SYS_brk, SYS_rt_sigaction,
    SYS_rt_sigprocmask, SYS_rt_sigreturn, SYS_ioctl, SYS_pread64, SYS_pwrite64, SYS_readv, SYS_writev, SYS_ppoll, SYS_pselect6, SYS_epoll_pwait, SYS_sched_yield,
    SYS_mremap, SYS_madvise, SYS_dup, SYS_nanosleep, SYS_getpid, SYS_socket, SYS_connect, SYS_accept, SYS_sendto,
    SYS_recvfrom, SYS_clone, SYS_execve, SYS_exit, SYS_wait4, SYS_kill, SYS_uname, SYS_fcntl, SYS_fsync, SYS_getcwd, SYS_gettimeofday,
    SYS_sysinfo, SYS_prctl, SYS_gettid, SYS_futex, SYS_sched_getaffinity, SYS_getdents64, SYS_set_tid_address,
    SYS_restart_syscall, SYS_clock_gettime, SYS_clock_nanosleep, SYS_exit_group, SYS_epoll_ctl, SYS_tgkill, SYS_openat,
    SYS_newfstatat, SYS_set_robust_list, SYS_accept4, SYS_epoll_create1, SYS_pipe2, SYS_prlimit64, SYS_getrandom, SYS_rseq,
#ifdef __x86_64__
    SYS_poll, SYS_pipe, SYS_select, SYS_dup2, SYS_pause, SYS_fork, SYS_arch_prctl, SYS_epoll_create, SYS_epoll_wait,
#endif
};

static struct sock_filter code[256];
static unsigned short length;

static void add(unsigned short what, unsigned value, unsigned yes, unsigned no)
{
    code[length++] = (struct sock_filter){what, (unsigned char)yes, (unsigned char)no, value};
}

static void load(unsigned offset)
{
    add(BPF_LD | BPF_W | BPF_ABS, offset, 0, 0);
}

static void answer(unsigned value)
{
    add(BPF_RET | BPF_K, value, 0, 0);
}

/* Everything from here on is about this system call; `skip` instructions of its own follow. */
static void only(unsigned number, unsigned skip)
{
    load(offsetof(struct seccomp_data, nr));
    add(BPF_JMP | BPF_JEQ | BPF_K, number, 0, skip);
}

static void install(int with_listener)
{
    struct sock_fprog program = {length, code};

    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
        stage_fail("no_new_privs cannot be set");
    if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, with_listener ? SECCOMP_FILTER_FLAG_NEW_LISTENER : 0, &program) < 0)
        stage_fail("the filter is not taken");
    length = 0;
}

static void always_allow(void)
{
    answer(SECCOMP_RET_ALLOW);
    install(0);
}

static void for_one(unsigned number, unsigned action)
{
    only(number, 1);
    answer(action);
    answer(SECCOMP_RET_ALLOW);
    install(action == SECCOMP_RET_USER_NOTIF);
}

static void list(unsigned otherwise)
{
    unsigned i;

    load(offsetof(struct seccomp_data, arch));
    add(BPF_JMP | BPF_JEQ | BPF_K, MACHINE, 1, 0);
    answer(SECCOMP_RET_KILL_PROCESS);
    load(offsetof(struct seccomp_data, nr));
    for (i = 0; i < COUNT(listed); i++)
        add(BPF_JMP | BPF_JEQ | BPF_K, listed[i], (unsigned)COUNT(listed) - i, 0);
    answer(otherwise);
    answer(SECCOMP_RET_ALLOW);
    install(0);
}

/* Kills for a system call whose argument meets the test; `jump` takes its value as the constant. */
static void by_argument(unsigned number, unsigned argument, int high, unsigned short jump, unsigned value, int when_true)
{
    only(number, 3);
    load((unsigned)offsetof(struct seccomp_data, args) + 8 * argument + (high ? 4 : 0));
    add(BPF_JMP | jump | BPF_K, value, when_true ? 0 : 1, when_true ? 1 : 0);
    answer(SECCOMP_RET_KILL_PROCESS);
    answer(SECCOMP_RET_ALLOW);
    install(0);
}

static void *rest(void *unused)
{
    (void)unused;
    stage_deepen();
    for (;;)
        syscall(SYS_ppoll, NULL, 0, NULL, NULL, 0);
    return NULL;
}

static void rule(const char *what)
{
    static const struct { const char *name; unsigned action; } actions[] = {
        {"kill-", SECCOMP_RET_KILL_PROCESS}, {"trap-", SECCOMP_RET_TRAP}, {"errno-", SECCOMP_RET_ERRNO | EPERM}, {"zero-", SECCOMP_RET_ERRNO},
        {"trace-", SECCOMP_RET_TRACE}, {"notify-", SECCOMP_RET_USER_NOTIF}, {"log-", SECCOMP_RET_LOG},
    };
    pthread_t thread;
    unsigned i, j;

    if (!strcmp(what, "none"))
        return;
    if (!strcmp(what, "strict")) {
        if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT, 0, 0, 0) != 0)
            stage_fail("no strict mode here");
        return;
    }
    if (!strcmp(what, "allow"))
        return always_allow();
    if (!strcmp(what, "list"))
        return list(SECCOMP_RET_ERRNO | EPERM);
    if (!strcmp(what, "list-kill"))
        return list(SECCOMP_RET_KILL_PROCESS);
    if (!strcmp(what, "dontneed"))
        return by_argument(SYS_madvise, 2, 0, BPF_JEQ, MADV_DONTNEED, 1);
    if (!strcmp(what, "other-advice"))
        return by_argument(SYS_madvise, 2, 0, BPF_JEQ, MADV_DONTNEED, 0);
    if (!strcmp(what, "long"))
        return by_argument(SYS_madvise, 1, 0, BPF_JGE, 1 << 20, 1);
    if (!strcmp(what, "kill-high-brk"))
        return by_argument(SYS_brk, 0, 1, BPF_JGE, 1 << 8, 1);
    if (!strcmp(what, "older")) {
        for_one(SYS_madvise, SECCOMP_RET_KILL_PROCESS);
        return always_allow();
    }
    if (!strcmp(what, "beside")) {
        if (pthread_create(&thread, NULL, rest, NULL) != 0)
            stage_fail("no second thread");
        return for_one(SYS_madvise, SECCOMP_RET_KILL_PROCESS);
    }
    for (i = 0; i < COUNT(actions); i++)
        for (j = 0; j < COUNT(names); j++)
            if (!strncmp(what, actions[i].name, strlen(actions[i].name)) && !strcmp(what + strlen(actions[i].name), names[j].name))
                return for_one(names[j].number, actions[i].action);
    stage_fail("no such rule");
}

int main(int count, char **words)
{
    struct timespec while_asleep = {3600, 0};
    uint64_t random = 7;
    unsigned i;

    if (count < 3)
        stage_fail("usage: filtered RECORD RULE [sleep]");
    if (count > 4 && !strcmp(words[3], "exec")) {
        rule(words[2]);
        execvp(words[4], words + 4);
        stage_fail("the program cannot be run");
    }
    record = stage_record(words[1], sizeof *record);
    for (i = 0; i < BLOCKS; i++) {
        size_t size = 200 + stage_random(&random) % 9000;

        blocks[i] = malloc(size);
        memset(blocks[i], 1, size);
    }
    for (i = 0; i + 1 < BLOCKS; i++)
        if (i % 8) {
            free(blocks[i]);
            blocks[i] = NULL;
        }
    stage_deepen();
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
    rule(words[2]);
    if (write(1, "ready\n", 6) != 6)
        _exit(71);
    if (count > 3)
        for (;;)
            if (clock_nanosleep(CLOCK_MONOTONIC, 0, &while_asleep, NULL) == EINTR && write(1, "ready\n", 6) != 6)
                _exit(71);
    for (;;) {
        if (stage_command() == 't')
            record->returned = (uint64_t)malloc_trim(0);
        record->counted++;
        if (write(1, "ready\n", 6) != 6)
            _exit(71);
    }
}
