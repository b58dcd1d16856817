/* One stop of a process, as short as can be: all threads are stopped, their registers are taken, the copy of its memory is made whole, and
   they go on. No Python runs meanwhile, unless mappings have changed since it was asked what is to be copied.

   Who holds them is a process of its own that has this one's memory (clone(2) with CLONE_VM), so that they go on also if this one is killed
   or stopped in between: then it ends its work and goes. If it is killed itself, or takes too long, the kernel lets them go. */
#define _GNU_SOURCE
#include "gdbheapx_short_stop.h"
#include "common/heapx.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define STACK_BYTES (256u << 10)
#define ENTRIES_BYTES (32u << 10)
#define STATUS_BYTES 4096u
#define SET_BYTES (16u << 10)       /* more than any register set has */
#define USUAL_BYTES 4096u           /* what those of a thread take together */
#define MORE_THREADS 1024u          /* that were made since they were counted */
#define MORE_TEXT (1u << 20)
#define MOST_SETS 8u
#define GET_FILTER 0x420c           /* PTRACE_SECCOMP_GET_FILTER */
#define EVENT_STOP 128
#define RESTART_BLOCK (-516)        /* -ERESTART_RESTARTBLOCK, which only a tracer sees */
#define WAIT_NS 1000000
#define GRACE_US 100000             /* behind the limit the kernel ends who holds */
#define RUNNING 3                   /* beside HELD_... */
#define GOES_ON 4

struct held_thread {
    pid_t lwp;
    int stands, signal;             /* the signal it was about to get; handed on when it is let go */
};

struct bytes {
    uint8_t *at;
    size_t used, room;
};

struct hold {
    struct hold_order order;
    uint32_t sets[MOST_SETS];
    size_t set_count;
    struct copy *copy;
    const struct source *swap;
    const uint8_t *maps;            /* as they were when the copy was told its ranges */
    uint64_t maps_bytes;
    int state;                      /* a futex: HELD_..., RUNNING, GOES_ON */
    int is_guarded;
    pthread_t guard;
    struct held_thread *held;       /* and those that had ended when they were to be stopped: no signal, and they do not stand */
    size_t held_count, held_room;
    uint32_t *places;               /* of each in held[] + 1, by lwp */
    size_t place_count;             /* a power of two */
    struct bytes text, registers;
    uint8_t *stack;
    double until;
    struct hold_taken taken;
    uint8_t entries[ENTRIES_BYTES];
    char status[STATUS_BYTES];
};

static int make(struct bytes *bytes, size_t usual, size_t most)
{
    bytes->at = lazy_alloc(bytes->room = most);
    if (bytes->at)
        memset(bytes->at, 1, usual < most ? usual : most);
    return bytes->at != NULL;
}

static int is_allowed(struct hold *hold, int was, int becomes)
{
    const int is_done = __atomic_compare_exchange_n(&hold->state, &was, becomes, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
    if (is_done)
        syscall(SYS_futex, &hold->state, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
    return is_done;
}

void heapx_hold_free(struct hold *hold)
{
    if (!hold)
        return;
    if (hold->is_guarded) {
        is_allowed(hold, HELD_ASKS, HELD_NOT);
        pthread_join(hold->guard, NULL);
    }
    lazy_free(hold->text.at, hold->text.room);
    lazy_free(hold->registers.at, hold->registers.room);
    lazy_free(hold->held, hold->held_room * sizeof *hold->held);
    lazy_free(hold->places, hold->place_count * sizeof *hold->places);
    lazy_free(hold->stack, STACK_BYTES);
    free(hold);
}

/* `sets`: the numbers of the register sets that are wanted, the general one first. Memory is made present here. */
struct hold *heapx_hold_new(const struct hold_order *order, const uint64_t *sets, uint64_t set_count)
{
    struct hold *hold = calloc(1, sizeof *hold);
    if (!hold || set_count > MOST_SETS) {
        free(hold);
        return NULL;
    }
    hold->order = *order;
    hold->set_count = (size_t) set_count;
    for (uint64_t i = 0; i < set_count; i++)
        hold->sets[i] = (uint32_t) sets[i];
    hold->held_room = (size_t) order->thread_count + MORE_THREADS;
    for (hold->place_count = 1; hold->place_count < 2 * hold->held_room;)
        hold->place_count *= 2;
    hold->held = lazy_alloc(hold->held_room * sizeof *hold->held);
    hold->places = lazy_alloc(hold->place_count * sizeof *hold->places);
    hold->stack = lazy_alloc(STACK_BYTES);
    const size_t usual = (size_t) order->thread_count * USUAL_BYTES;
    if (!make(&hold->text, (size_t) order->text_bytes + CACHE_PAGE, (size_t) order->text_bytes * 2 + MORE_TEXT)
            || !make(&hold->registers, usual, hold->held_room * SET_BYTES) || !hold->held || !hold->places || !hold->stack) {
        heapx_hold_free(hold);
        return NULL;
    }
    memset(hold->stack, 1, STACK_BYTES);
    memset(hold->entries, 1, sizeof hold->entries);
    memset(hold->status, 1, sizeof hold->status);
    memset(hold->held, 0, (size_t) order->thread_count * sizeof *hold->held);
    return hold;
}

/* ---- what the process that holds does ---- */

/* The place of a thread in the table, which may be free. */
static uint32_t *place_of(const struct hold *hold, pid_t lwp)
{
    size_t at = (size_t) lwp & (hold->place_count - 1);
    while (hold->places[at] && hold->held[hold->places[at] - 1].lwp != lwp)
        at = (at + 1) & (hold->place_count - 1);
    return &hold->places[at];
}

/* 0: it cannot be stopped, and is not over. */
static int seize(struct hold *hold, pid_t lwp)
{
    uint32_t *place = place_of(hold, lwp);
    if (*place)
        return 1;
    if (hold->held_count == hold->held_room)
        return 0;
    struct held_thread *thread = &hold->held[hold->held_count];
    *thread = (struct held_thread) {.lwp = lwp, .signal = -1};
    if (ptrace(PTRACE_SEIZE, lwp, NULL, NULL)) {
        if (errno != ESRCH)
            return 0;
    } else {
        ptrace(PTRACE_INTERRUPT, lwp, NULL, NULL);
        thread->signal = 0;
    }
    *place = (uint32_t) ++hold->held_count;
    return 1;
}

/* Waits until a thread stands still, or has ended. 0: it does not in time. */
static int await(struct hold *hold, struct held_thread *thread, double until)
{
    const struct timespec wait = {0, WAIT_NS};
    sigset_t child;
    int state;
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    for (;;) {
        const pid_t got = waitpid(thread->lwp, &state, __WALL | WNOHANG);
        if (got > 0 && WIFSTOPPED(state)) {     /* an event stop of ours carries no signal for the program */
            thread->signal = state >> 16 == EVENT_STOP ? 0 : WSTOPSIG(state);
            return thread->stands = 1;
        }
        if (got) {
            if (got > 0 && (uint64_t) got == hold->order.pid)
                hold->taken.ended = (uint64_t) state + 1;
            thread->signal = -1;
            return 1;
        }
        if (clock_now() > until)
            return 0;
        sigtimedwait(&child, NULL, &wait);
    }
}

static size_t slurp(const char *path, uint8_t *to, size_t room)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    size_t used = 0;
    ssize_t got = 0;
    while (fd >= 0 && used < room && (got = read(fd, to + used, room - used)) > 0)
        used += (size_t) got;
    if (fd >= 0)
        close(fd);
    return got < 0 ? 0 : used;
}

/* The kernel goes on with its system call by another one, and a seccomp filter may kill it for that. Not where there is none; what one
   answers is not asked here. */
static int may_restart(struct hold *hold, pid_t lwp)
{
    char path[64];
    if (ptrace(GET_FILTER, lwp, NULL, NULL) < 0 && errno == EINVAL)
        return 1;
    snprintf(path, sizeof path, "/proc/%d/status", (int) lwp);
    hold->status[slurp(path, (uint8_t *) hold->status, STATUS_BYTES - 1)] = 0;
    const char *mode = strstr(hold->status, "\nSeccomp:\t");
    return !mode || mode[10] != '2';
}

/* See tracer.py: the thread gets EINTR, as a signal would give it. */
static void spare(struct hold *hold, pid_t lwp, uint8_t *set, size_t bytes)
{
    int64_t *words = (int64_t *) (uintptr_t) set;
    const size_t most = (size_t) (hold->order.number_at > hold->order.result_at ? hold->order.number_at : hold->order.result_at);
    if (bytes / 8 <= most || words[hold->order.result_at] != RESTART_BLOCK || words[hold->order.number_at] < 0 || may_restart(hold, lwp))
        return;
    struct iovec vector = {set, bytes};
    words[hold->order.result_at] = -EINTR;
    ptrace(PTRACE_SETREGSET, lwp, (void *) (uintptr_t) hold->sets[0], &vector);
}

/* The register sets of a thread: its lwp, the number and the length of each, and the bytes, up to a multiple of 8. The first one at once
   when it stands: whoever ends lets it go by that. */
static int take_registers(struct hold *hold, pid_t lwp)
{
    struct bytes *to = &hold->registers;
    for (size_t i = 0; i < hold->set_count; i++) {
        if (to->room - to->used < SET_BYTES + 24)
            return 0;
        uint64_t *head = (uint64_t *) (uintptr_t) (to->at + to->used);
        struct iovec vector = {head + 3, SET_BYTES};
        if (ptrace(PTRACE_GETREGSET, lwp, (void *) (uintptr_t) hold->sets[i], &vector))
            vector.iov_len = 0;
        if (!i)
            spare(hold, lwp, vector.iov_base, vector.iov_len);
        head[0] = (uint64_t) lwp;
        head[1] = hold->sets[i];
        head[2] = vector.iov_len;
        to->used += 24 + (vector.iov_len + 7) / 8 * 8;
    }
    return 1;
}

/* Stops all threads, also those that are being made meanwhile. */
static int stop_all(struct hold *hold)
{
    char path[64];
    const double until = clock_now() + (double) hold->order.patience_ns * 1e-9;
    snprintf(path, sizeof path, "/proc/%d/task", (int) hold->order.pid);
    const int folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0)
        return 0;
    int whole = 1;
    for (size_t done = 0, before = SIZE_MAX; whole && before != hold->held_count;) {
        long got;
        before = hold->held_count;
        lseek(folder, 0, SEEK_SET);
        while (whole && (got = syscall(SYS_getdents64, folder, hold->entries, ENTRIES_BYTES)) > 0)
            for (long at = 0; whole && at < got;) {
                uint16_t length;    /* struct linux_dirent64 */
                memcpy(&length, hold->entries + at + 16, sizeof length);
                const long lwp = (long) number_in((const char *) hold->entries + at + 19);
                whole = lwp <= 0 || seize(hold, (pid_t) lwp);
                at += length;
            }
        for (; whole && done < hold->held_count; done++)
            if (hold->held[done].signal >= 0)
                whole = await(hold, &hold->held[done], until)
                        && (!hold->held[done].stands || take_registers(hold, hold->held[done].lwp));
    }
    close(folder);
    return whole;
}

/* Mappings are others than the copy knows: its ranges are asked for. 0: they are not told in time. */
static int ask(struct hold *hold)
{
    if (!is_allowed(hold, RUNNING, HELD_ASKS))
        return 0;
    for (double left; __atomic_load_n(&hold->state, __ATOMIC_SEQ_CST) == HELD_ASKS && (left = hold->until - clock_now()) > 0;) {
        const struct timespec wait = {(time_t) left, (long) ((left - (double) (time_t) left) * 1e9)};
        syscall(SYS_futex, &hold->state, FUTEX_WAIT_PRIVATE, HELD_ASKS, &wait, NULL, 0);
    }
    return !is_allowed(hold, HELD_ASKS, HELD_NOT) && __atomic_load_n(&hold->state, __ATOMIC_SEQ_CST) == GOES_ON;
}

static void hold_it(struct hold *hold)
{
    char path[64];
    const double began = clock_now();
    snprintf(path, sizeof path, "/proc/%d/maps", (int) hold->order.pid);
    hold->until = began + (double) hold->order.limit_ns * 1e-9;
    int is_whole = stop_all(hold);
    hold->taken.began_ns = (uint64_t) (began * 1e9);
    if (is_whole) {
        hold->text.used = slurp(path, hold->text.at, hold->text.room);
        hold->taken.text = (uint64_t) (uintptr_t) hold->text.at;
        hold->taken.text_bytes = hold->text.used;
        is_whole = hold->text.used && hold->text.used < hold->text.room;
    }
    if (is_whole && (hold->text.used != hold->maps_bytes || memcmp(hold->text.at, hold->maps, hold->text.used)))
        is_whole = ask(hold);
    if (is_whole) {
        struct copy_taken taken;
        hold->taken.unread_from = heapx_copy_last(hold->copy, hold->order.worker_count, hold->swap, &hold->until, &taken);
        hold->taken.copied_bytes = taken.copied_bytes;
        hold->taken.unread_bytes = taken.unread_bytes;
    }
    for (size_t i = 0; i < hold->held_count; i++)   /* they go on */
        if (hold->held[i].stands)
            ptrace(PTRACE_DETACH, hold->held[i].lwp, NULL, (void *) (uintptr_t) hold->held[i].signal);
    hold->taken.stopped_ns = (uint64_t) ((clock_now() - began) * 1e9);
    hold->taken.registers = (uint64_t) (uintptr_t) hold->registers.at;
    hold->taken.registers_bytes = hold->registers.used;
    if (is_whole && !is_allowed(hold, RUNNING, HELD_DONE))
        is_allowed(hold, GOES_ON, HELD_DONE);
}

/* No signal but the one of its clock: the terminal and whoever ends a group of processes do not concern it. */
static int serve(void *item)
{
    struct hold *hold = item;
    const struct sched_param lowest = {.sched_priority = 1};
    const uint64_t limit_us = hold->order.limit_ns / 1000 + GRACE_US;
    const struct itimerval limit = {.it_value = {(time_t) (limit_us / 1000000), (suseconds_t) (limit_us % 1000000)}};
    sigset_t clock;
    setsid();
    signal(SIGCHLD, SIG_DFL);
    signal(SIGALRM, SIG_DFL);
    sigemptyset(&clock);
    sigaddset(&clock, SIGALRM);
    sigprocmask(SIG_UNBLOCK, &clock, NULL);
    setitimer(ITIMER_REAL, &limit, NULL);
    if (sched_getscheduler(0) == SCHED_OTHER && sched_setscheduler(0, SCHED_FIFO, &lowest))
        setpriority(PRIO_PROCESS, 0, -20);
    hold_it(hold);
    syscall(SYS_exit_group, 0);
    return 0;
}

/* ---- this process's side ---- */

/* A thread that lends the other process its place in the C library, and stands still meanwhile: errno, and what malloc keeps for each. */
static void *guard(void *item)
{
    struct hold *hold = item;
    const int child = clone(serve, hold->stack + STACK_BYTES, CLONE_VM | CLONE_VFORK, hold);
    while (child > 0 && waitpid(child, NULL, __WALL) < 0 && errno == EINTR)
        ;
    for (int state = RUNNING; state != HELD_DONE && !is_allowed(hold, state, HELD_NOT);)
        state = __atomic_load_n(&hold->state, __ATOMIC_SEQ_CST);
    return NULL;
}

static int outcome(struct hold *hold, int state, struct hold_taken *out)
{
    while (__atomic_load_n(&hold->state, __ATOMIC_SEQ_CST) == state)
        syscall(SYS_futex, &hold->state, FUTEX_WAIT_PRIVATE, state, NULL, NULL, 0);
    state = __atomic_load_n(&hold->state, __ATOMIC_SEQ_CST);
    if (state != HELD_ASKS) {
        hold->is_guarded = 0;
        pthread_join(hold->guard, NULL);
        state = __atomic_load_n(&hold->state, __ATOMIC_SEQ_CST);
    }
    *out = hold->taken;
    return state;
}

/* Stops the process and ends the copy, which has been run along and knows the ranges of these mappings (the text of maps). HELD_ASKS: they
   are others by now, and the process stands still until heapx_hold_go_on(), or the limit. HELD_NOT: it was not possible, and runs on. */
int heapx_hold_begin(struct hold *hold, struct copy *copy, const struct source *swap, const uint8_t *maps, uint64_t maps_bytes,
                     struct hold_taken *out)
{
    sigset_t all, before;
    hold->copy = copy;
    hold->swap = swap;
    hold->maps = maps;
    hold->maps_bytes = maps_bytes;
    hold->state = RUNNING;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    hold->is_guarded = !pthread_create(&hold->guard, NULL, guard, hold);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return hold->is_guarded ? outcome(hold, RUNNING, out) : HELD_NOT;
}

/* The copy knows the ranges of the mappings that were told. */
int heapx_hold_go_on(struct hold *hold, struct hold_taken *out)
{
    is_allowed(hold, HELD_ASKS, GOES_ON);
    return outcome(hold, GOES_ON, out);
}
