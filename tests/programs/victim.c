/* victim RECORD server SOCKET | victim RECORD single | victim RECORD rest

   server: threads that hammer malloc and free, that keep values in registers over loops and over inlined system calls, that are
   blocked in nanosleep, futex, epoll_wait, poll, read; a thread that counts signals, and one that answers requests on a unix
   socket. Each checks its own data, return values, errno and times, and counts what was wrong.
   single: one thread alone, for ever in malloc and free.
   rest: three threads leave free memory behind and come to rest in nanosleep, futex and read; the main thread reads commands:
   `t` calls malloc_trim itself, `x` works a little. Nothing changes by itself. */

#include "stage.h"
#include "victim_registers.h"
#include <errno.h>
#include <linux/futex.h>
#include <malloc.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>

#define MOST 32
#define MS 1000000

/* One thread's account; the thread itself is the only writer. */
struct account {
    char name[16];
    uint64_t lwp;
    uint64_t rounds;      /* of its work, so a thread that hangs shows */
    uint64_t wrong;       /* answers that cannot be */
    uint64_t interrupted; /* EINTR where any attach of a debugger gives it: epoll_wait and nanosleep, signal(7) */
    int64_t what, value;  /* of the first wrong one: line and value */
};

struct record {
    uint64_t count, signals;
    struct account accounts[MOST];
};

static struct record *record;
static const char *socket_path;
static int inline_pipe[2], read_pipe[2], events, rest_pipe[2];

static void wrong(struct account *me, int line, int64_t value)
{
    if (!me->wrong++) {
        me->what = line;
        me->value = value;
    }
}
#define CHECK(CONDITION, VALUE) do { if (!(CONDITION)) wrong(me, __LINE__, (int64_t)(VALUE)); } while (0)

static uint64_t now(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000 * MS + (uint64_t)time.tv_nsec;
}

static void rest_a_while(long ns)
{
    struct timespec time = {0, ns};

    while (nanosleep(&time, &time) != 0 && errno == EINTR)
        ;
}

/* ---------------------------------------------------------------------------------------------------- malloc and free */

#define SLOTS 600

struct slot { unsigned char *memory; size_t size; unsigned char value; };

/* Writes or checks both ends and a byte in every 509: little beside what malloc and free do. Returns the first wrong byte, or -1. */
static int each_byte(struct slot *slot, int writing)
{
    size_t i;

    for (i = 0; i < slot->size; i += i < 32 || i + 32 >= slot->size ? 1 : slot->size - 32 - i < 509 ? slot->size - 32 - i : 509)
        if (writing)
            slot->memory[i] = slot->value;
        else if (slot->memory[i] != slot->value)
            return slot->memory[i];
    return -1;
}

static void hammer_once(struct account *me, struct slot *slots, uint64_t *random, size_t least)
{
    struct slot *slot = slots + stage_random(random) % SLOTS;
    int bad;

    if (slot->memory) {
        bad = each_byte(slot, 0);
        CHECK(bad < 0, bad);
        CHECK(malloc_usable_size(slot->memory) >= slot->size, malloc_usable_size(slot->memory));
        if (stage_random(random) % 4) {
            free(slot->memory);
            slot->memory = NULL;
            return;
        }
    }
    slot->size = least + stage_request(random);
    slot->value = (unsigned char)stage_random(random);
    slot->memory = realloc(slot->memory, slot->size);
    if (!slot->memory)
        stage_fail("no memory");
    each_byte(slot, 1);
}

static void work_hammer(struct account *me)
{
    struct slot *slots = stage_pages(SLOTS * sizeof *slots);
    uint64_t random = 77 + me->lwp;

    for (;; me->rounds++)
        hammer_once(me, slots, &random, 0);
}

/* Loads many blocks and drops them again, so that there is memory to give back. */
static void work_burst(struct account *me)
{
    struct slot *slots = stage_pages(SLOTS * sizeof *slots);
    uint64_t random = 99;
    unsigned i;

    for (;; me->rounds++) {
        for (i = 0; i < SLOTS; i++)
            hammer_once(me, slots, &random, 3000);
        rest_a_while(5 * MS);
    }
}

/* ---------------------------------------------------------------------------------------------------- registers */

#ifdef HELD
static void work_spin(struct account *me)
{
    struct held held;

    for (;; me->rounds++) {
        held_prepare(&held, me->rounds + 1);
        held_loop(&held, 2 * MS);
        held_run(&held);
        CHECK(!held_wrong(&held), held_wrong(&held));
        rest_a_while(MS / 2);
    }
}

static void work_inline_sleep(struct account *me)
{
    struct timespec time = {0, 15 * MS};
    struct held held;
    uint64_t begun;

    for (;; me->rounds++) {
        held_prepare(&held, me->rounds + 3);
        held.in[NUMBER] = SYS_nanosleep;
        held.in[FIRST] = (uint64_t)&time;
        held.in[SECOND] = 0;
        begun = now();
        held_run(&held);
        CHECK(!held_wrong(&held), held_wrong(&held));
        if ((int64_t)held.out[RESULT] == -EINTR)
            me->interrupted++;
        else
            CHECK(held.out[RESULT] == 0 && now() - begun >= 15 * MS, held.out[RESULT]);
    }
}

static void work_inline_futex(struct account *me)
{
    struct timespec time = {0, 15 * MS};
    struct held held;
    uint32_t word = 5;
    uint64_t begun;

    for (;; me->rounds++) {
        held_prepare(&held, me->rounds + 5);
        held.in[NUMBER] = SYS_futex;
        held.in[FIRST] = (uint64_t)&word;
        held.in[SECOND] = FUTEX_WAIT_PRIVATE;
        held.in[THIRD] = 5;
        held.in[FOURTH] = (uint64_t)&time;
        begun = now();
        held_run(&held);
        CHECK(!held_wrong(&held), held_wrong(&held));
        CHECK((int64_t)held.out[RESULT] == -ETIMEDOUT && now() - begun >= 15 * MS, held.out[RESULT]);
    }
}

static void work_inline_read(struct account *me)
{
    struct held held;
    uint64_t number, expected = 0;

    for (;; me->rounds++) {
        held_prepare(&held, me->rounds + 7);
        held.in[NUMBER] = SYS_read;
        held.in[FIRST] = (uint64_t)inline_pipe[0];
        held.in[SECOND] = (uint64_t)&number;
        held.in[THIRD] = sizeof number;
        held_run(&held);
        CHECK(!held_wrong(&held), held_wrong(&held));
        CHECK(held.out[RESULT] == sizeof number, held.out[RESULT]);
        if (held.out[RESULT] == sizeof number) {
            CHECK(number == expected, number);
            expected = number + 1;
        }
    }
}
#endif

/* ---------------------------------------------------------------------------------------------------- blocked in the kernel */

#define MARK 4242 /* errno, which nobody but the thread may set */

static void work_nanosleep(struct account *me)
{
    struct timespec time = {0, 20 * MS}, left;
    uint64_t begun;
    int done;

    for (;; me->rounds++) {
        left.tv_sec = left.tv_nsec = 0;
        errno = MARK;
        begun = now();
        done = nanosleep(&time, &left);
        if (done == -1 && errno == EINTR) {
            me->interrupted++;
            CHECK(left.tv_sec == 0 && left.tv_nsec <= 20 * MS, left.tv_nsec);
        } else {
            CHECK(done == 0 && errno == MARK, errno);
            CHECK(now() - begun >= 20 * MS, now() - begun);
        }
    }
}

static void work_futex(struct account *me)
{
    struct timespec time = {0, 20 * MS};
    uint32_t word = 5;
    uint64_t begun;
    long done;

    for (;; me->rounds++) {
        errno = MARK;
        begun = now();
        done = syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 5, &time, NULL, 0);
        CHECK(done == -1 && errno == ETIMEDOUT, errno);
        CHECK(now() - begun >= 20 * MS, now() - begun);
        errno = MARK;
        done = syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 6, &time, NULL, 0);
        CHECK(done == -1 && errno == EAGAIN, errno);
    }
}

static void work_condition(struct account *me)
{
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
    struct timespec until;
    int done;

    for (;; me->rounds++) {
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += 20 * MS;
        if (until.tv_nsec >= 1000 * MS) {
            until.tv_nsec -= 1000 * MS;
            until.tv_sec++;
        }
        errno = MARK;
        pthread_mutex_lock(&mutex);
        done = pthread_cond_timedwait(&condition, &mutex, &until);
        pthread_mutex_unlock(&mutex);
        CHECK((done == ETIMEDOUT || done == 0) && errno == MARK, done);
    }
}

static void work_poll(struct account *me)
{
    struct pollfd none = {rest_pipe[0], POLLIN, 0};
    uint64_t begun;
    int done;

    for (;; me->rounds++) {
        errno = MARK;
        begun = now();
        done = poll(&none, 1, 20);
        CHECK(done == 0 && errno == MARK, done);
        CHECK(now() - begun >= 19 * MS, now() - begun);
    }
}

static void work_epoll(struct account *me)
{
    struct epoll_event asked = {.events = EPOLLIN, .data = {.u64 = 0x1122334455667788}}, got;
    int fd = epoll_create1(0), done;
    uint64_t sum, next = 0;

    epoll_ctl(fd, EPOLL_CTL_ADD, events, &asked);
    for (;; me->rounds++) {
        memset(&got, 0, sizeof got);
        errno = MARK;
        done = epoll_wait(fd, &got, 1, -1);
        if (done == -1 && errno == EINTR) {
            me->interrupted++;
            continue;
        }
        CHECK(done == 1 && errno == MARK && got.data.u64 == asked.data.u64 && got.events == EPOLLIN, done);
        CHECK(read(events, &sum, sizeof sum) == sizeof sum && sum >= 1, sum);
        next += sum;
    }
}

static void work_read(struct account *me)
{
    uint64_t number, expected = 0;
    ssize_t done;

    for (;; me->rounds++) {
        errno = MARK;
        done = read(read_pipe[0], &number, sizeof number);
        CHECK(done == sizeof number && errno == MARK, errno);
        if (done == sizeof number) {
            CHECK(number == expected, number);
            expected = number + 1;
        }
    }
}

/* Feeds the readers: each number once, in order. */
static void work_feeder(struct account *me)
{
    uint64_t one = 1;

    for (;; me->rounds++) {
        CHECK(write(inline_pipe[1], &me->rounds, sizeof me->rounds) == sizeof me->rounds, errno);
        CHECK(write(read_pipe[1], &me->rounds, sizeof me->rounds) == sizeof me->rounds, errno);
        CHECK(write(events, &one, sizeof one) == sizeof one, errno);
        rest_a_while(7 * MS);
    }
}

/* ---------------------------------------------------------------------------------------------------- signals and requests */

static void on_signal(int number)
{
    (void)number;
    record->signals++; /* only one thread takes this signal, and it is blocked meanwhile */
}

static void work_signals(struct account *me)
{
    sigset_t queued;

    sigemptyset(&queued);
    sigaddset(&queued, SIGRTMIN);
    pthread_sigmask(SIG_UNBLOCK, &queued, NULL);
    for (;; me->rounds++)
        usleep(3000);
}

static int whole(int fd, void *data, size_t bytes, int writing)
{
    char *place = data;

    while (bytes) {
        ssize_t done = writing ? write(fd, place, bytes) : read(fd, place, bytes);

        if (done <= 0)
            return -1;
        place += done;
        bytes -= (size_t)done;
    }
    return 0;
}

/* A request is a seed and a size; the answer that many bytes of the sequence of the seed, made in memory from malloc. */
static void work_server(struct account *me)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM, 0), client;
    uint64_t request[2], state, i;

    snprintf(address.sun_path, sizeof address.sun_path, "%s", socket_path);
    if (bind(fd, (struct sockaddr *)&address, sizeof address) != 0 || listen(fd, 8) != 0)
        stage_fail("the socket cannot be made");
    for (;;) {
        client = accept(fd, NULL, NULL);
        if (client < 0) {
            wrong(me, __LINE__, errno);
            continue;
        }
        while (whole(client, request, sizeof request, 0) == 0) {
            uint64_t *answer = malloc(request[1] * sizeof *answer);

            state = request[0];
            for (i = 0; i < request[1]; i++)
                answer[i] = stage_random(&state);
            if (whole(client, answer, request[1] * sizeof *answer, 1) != 0)
                wrong(me, __LINE__, errno);
            free(answer);
            me->rounds++;
        }
        close(client);
    }
}

/* ---------------------------------------------------------------------------------------------------- at rest */

/* Leaves memory behind that malloc keeps, in runs between blocks that live on. */
static void leave_behind(uint64_t random)
{
    enum { BLOCKS = 3000 };
    void **blocks = stage_pages(BLOCKS * sizeof *blocks);
    unsigned i;

    for (i = 0; i < BLOCKS; i++) {
        size_t size = 100 + stage_random(&random) % 20000;

        blocks[i] = malloc(size);
        memset(blocks[i], 1, size);
    }
    for (i = 0; i < BLOCKS; i++)
        if (i % 16)
            free(blocks[i]);
}

static void settle(struct account *me)
{
    stage_deepen(); /* the stack that a call will need is there already */
    leave_behind(me->lwp);
    me->rounds = 1;
}

static void work_rest_sleep(struct account *me)
{
    settle(me);
    for (;;)
        sleep(100000);
}

static void work_rest_futex(struct account *me)
{
    uint32_t word = 1;

    settle(me);
    for (;;)
        syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 1, NULL, NULL, 0);
}

static void work_rest_read(struct account *me)
{
    char byte;

    settle(me);
    for (;;)
        CHECK(read(rest_pipe[0], &byte, 1) == 1, errno);
}

/* ---------------------------------------------------------------------------------------------------- the parts */

struct part { const char *name; void (*work)(struct account *); int allocates; };

static const struct part server_parts[] = {
    {"hammer-0", work_hammer, 1}, {"hammer-1", work_hammer, 1}, {"burst", work_burst, 1},
#ifdef HELD
    {"spin", work_spin, 0}, {"inline-sleep", work_inline_sleep, 0}, {"inline-futex", work_inline_futex, 1}, {"inline-read", work_inline_read, 1},
#endif
    {"nanosleep", work_nanosleep, 1}, {"futex", work_futex, 1}, {"condition", work_condition, 1}, {"poll", work_poll, 0},
    {"epoll", work_epoll, 1}, {"read", work_read, 1}, {"feeder", work_feeder, 0}, {"signals", work_signals, 0}, {"server", work_server, 1},
};
static const struct part rest_parts[] = {{"rest-sleep", work_rest_sleep, 1}, {"rest-futex", work_rest_futex, 1}, {"rest-read", work_rest_read, 1}};

static void *begin(void *given)
{
    const struct part *part = given;
    struct account *me = record->accounts;

    while (strcmp(me->name, part->name) != 0)
        me++;
    pthread_setname_np(pthread_self(), part->name);
    if (part->allocates) {
        void *volatile first = malloc(100);

        free(first);
    }
    me->lwp = (uint64_t)syscall(SYS_gettid);
    part->work(me);
    return NULL;
}

static void begin_all(const struct part *parts, unsigned count)
{
    unsigned i;

    for (i = 0; i < count; i++)
        strcpy(record->accounts[i].name, parts[i].name);
    record->count = count;
    for (i = 0; i < count; i++) {
        pthread_t id;

        if (pthread_create(&id, NULL, begin, (void *)(parts + i)) != 0)
            stage_fail("a thread cannot be made");
    }
    for (i = 0; i < count; i++) /* a server waits for requests; the others have worked */
        while (!record->accounts[i].rounds && (strcmp(parts[i].name, "server") || !record->accounts[i].lwp))
            usleep(1000);
}

int main(int argc, char **argv)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigset_t queued;

    if (argc < 3)
        stage_fail("usage: victim RECORD server SOCKET | single | rest");
    record = stage_record(argv[1], sizeof *record);
    if (!strcmp(argv[2], "single")) {
        strcpy(record->accounts[0].name, "single");
        record->accounts[0].lwp = (uint64_t)getpid();
        record->count = 1;
        stage_ready(1);
        work_hammer(record->accounts);
    }
    sigemptyset(&queued);
    sigaddset(&queued, SIGRTMIN);
    pthread_sigmask(SIG_BLOCK, &queued, NULL);
    sigaction(SIGRTMIN, &action, NULL);
    events = eventfd(0, 0);
    if (pipe(inline_pipe) || pipe(read_pipe) || pipe(rest_pipe) || events < 0)
        stage_fail("no pipes");
    if (!strcmp(argv[2], "rest")) {
        stage_deepen();
        leave_behind(1);
        begin_all(rest_parts, sizeof rest_parts / sizeof *rest_parts);
        for (;;) {
            stage_ready(1);
            switch (stage_command()) {
            case 't':
                malloc_trim(0);
                break;
            case 'x':
                leave_behind(2);
                break;
            }
        }
    }
    socket_path = argv[3];
    begin_all(server_parts, sizeof server_parts / sizeof *server_parts);
    for (;;) {
        stage_ready(1);
        stage_command();
    }
}
