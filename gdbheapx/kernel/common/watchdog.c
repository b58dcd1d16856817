/* Ends this process where Python does not: a second after a signal or the deadline, by a thread that no lock of Python's holds up. */
#define _GNU_SOURCE
#include "heapx.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define LOOK_MS 250         /* until anything is heard: a signal may come while no thread that hears it is awake */
#define STEP_MS 50
#define STACK_BYTES (256u << 10)
#define GRACE_S 1.0
#define LEAST_CPU_S 0.7     /* of a process that works: on a busy machine a second of the clock is little */
#define ASLEEP_STEPS 10
#define LONGEST_S 5.0

static const int NUMBERS[] = {0, SIGHUP, SIGINT, SIGTERM};
#define CAUSES (sizeof NUMBERS / sizeof *NUMBERS)

/* Never freed: the thread reads it until the process has ended, also while Python takes its own objects apart. */
struct watch {
    uint64_t cells[WATCH_CELLS];    /* WATCH_..., written by the caller, as the paths are */
    char paths[WATCH_PATHS * WATCH_PATH_BYTES];
    const char *lines[CAUSES], *documents[CAUSES];
    double until;
    int wake, out, told;
    sigset_t heard;                 /* by some other thread */
    char texts[];
};

static double cpu_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double) now.tv_sec + (double) now.tv_nsec * 1e-9;
}

/* The first thread waits for something, be it where only SIGKILL is heard. */
static int is_asleep(void)
{
    char text[512];
    const int fd = open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
    const ssize_t got = fd < 0 ? 0 : read(fd, text, sizeof text - 1);
    if (fd >= 0)
        close(fd);
    for (ssize_t at = got - 1; at > 0; at--)
        if (text[at] == ')')
            return at + 2 < got && text[at + 2] != 'R';
    return 0;
}

static void put(int fd, const char *text)
{
    size_t left = strlen(text);
    while (left) {
        struct pollfd ready = {fd, POLLOUT, 0};
        const ssize_t done = poll(&ready, 1, STEP_MS) == 1 ? write(fd, text, left < 512 ? left : 512) : -1;
        if (done <= 0)      /* nobody reads */
            return;
        text += done;
        left -= (size_t) done;
    }
}

static void end(struct watch *watch, size_t cause)
{
    uint64_t watches = WATCH_ON;
    if (!__atomic_compare_exchange_n(&watch->cells[WATCH_STATE], &watches, WATCH_ENDS, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
        return;
    for (size_t i = 0; i < WATCH_PATHS; i++)
        if (watch->paths[i * WATCH_PATH_BYTES])
            unlink(watch->paths + i * WATCH_PATH_BYTES);
    put(STDERR_FILENO, watch->lines[cause]);
    if (!watch->cells[WATCH_BEGUN])
        put(watch->out, watch->documents[cause]);
    if (watch->told >= 0)
        put(watch->told, "1");
    _exit(1);
}

/* A signal that came; 0: none has. */
static size_t hear(struct watch *watch, int milliseconds)
{
    struct pollfd woken = {watch->wake, POLLIN, 0};
    uint8_t number = 0;
    sigset_t pending;
    if (poll(&woken, 1, milliseconds) > 0 && read(watch->wake, &number, 1) <= 0)
        watch->wake = -1;
    sigemptyset(&pending);
    sigpending(&pending);
    for (size_t i = 1; i < CAUSES; i++)
        if (number == NUMBERS[i] || (sigismember(&pending, NUMBERS[i]) && sigismember(&watch->heard, NUMBERS[i])))
            return i;
    return 0;
}

static void *run(void *argument)
{
    struct watch *watch = argument;
    double since = 0, worked = 0;
    unsigned asleep = 0;
    for (size_t cause = 0;;) {
        const double left = watch->cells[WATCH_ANSWERED] ? 1 : (watch->until - clock_now()) * 1000 + 1;
        const size_t heard = hear(watch, since ? STEP_MS : left < LOOK_MS ? left > 0 ? (int) left : 0 : LOOK_MS);
        const double now = clock_now();
        const int is_late = now > watch->until && !watch->cells[WATCH_ANSWERED];
        cause = cause ? cause : heard;
        if (watch->cells[WATCH_STATE] != WATCH_ON || (!cause && !is_late))
            since = 0;
        else if (!since) {
            since = now;
            worked = cpu_now();
            asleep = 0;
        }
        if (!since)
            continue;
        asleep = is_asleep() ? asleep + 1 : 0;
        if (now - since > LONGEST_S || (now - since >= GRACE_S && (cpu_now() - worked >= LEAST_CPU_S || asleep >= ASLEEP_STEPS)))
            end(watch, cause);
    }
    return NULL;
}

/* `texts`: a line and a document for each cause, the deadline first. `wake`: gives the number of each signal that comes. `told`: where the
   exit code is told; -1: nowhere. Returns where the cells are, with the paths of what is to be removed behind them; 0: no thread. */
uint64_t heapx_watchdog_start(const uint8_t *texts, uint64_t texts_bytes, double until, int wake, int out, int told)
{
    struct watch *watch = calloc(1, sizeof *watch + texts_bytes);
    const char *text = watch ? memcpy(watch->texts, texts, texts_bytes) : NULL;
    sigset_t all, before;
    pthread_attr_t how;
    pthread_t thread;
    if (!watch || pthread_attr_init(&how)) {
        free(watch);
        return 0;
    }
    for (size_t i = 0; i < CAUSES; i++) {
        watch->lines[i] = text;
        watch->documents[i] = text += strlen(text) + 1;
        text += strlen(text) + 1;
    }
    watch->until = until;
    watch->wake = wake;
    watch->out = out;
    watch->told = told;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    sigemptyset(&watch->heard);
    for (size_t i = 1; i < CAUSES; i++)
        if (!sigismember(&before, NUMBERS[i]))
            sigaddset(&watch->heard, NUMBERS[i]);
    pthread_attr_setstacksize(&how, STACK_BYTES);
    pthread_attr_setdetachstate(&how, PTHREAD_CREATE_DETACHED);
    const int failed = pthread_create(&thread, &how, run, watch);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&how);
    if (failed)
        free(watch);
    return failed ? 0 : (uint64_t) (uintptr_t) watch->cells;
}

/* From now on the process is not ended, or it may be again. It does not return where it is being ended. */
void heapx_watchdog_hold(uint64_t *cells, int holds)
{
    uint64_t state = holds ? WATCH_ON : WATCH_HELD;
    if (!__atomic_compare_exchange_n(&cells[WATCH_STATE], &state, holds ? WATCH_HELD : WATCH_ON, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
        while (state == WATCH_ENDS)
            pause();
}
