/* cacheless RECORD MODE: threads without a thread cache, though nothing is wrong

   idle     threads that never called malloc
   aligned  threads that asked for aligned memory alone
   left     the other threads ended by the system call itself: nobody detached them from their arenas */

#include "stage.h"

#include <malloc.h>
#include <pthread.h>
#include <sys/syscall.h>

#define THREADS 4

static pthread_barrier_t started, forever;

/* How many threads the kernel still has. */
static int living(void)
{
    char text[4096], *at;
    int fd = open("/proc/self/status", O_RDONLY);
    ssize_t got = fd < 0 ? -1 : read(fd, text, sizeof text - 1);

    if (got < 0)
        stage_fail("no /proc");
    close(fd);
    text[got] = 0;
    at = strstr(text, "Threads:");
    return at ? atoi(at + 8) : 0;
}

static void *work(void *mode)
{
    if (strcmp(mode, "idle") != 0) {
        char *kept = strcmp(mode, "aligned") == 0 ? memalign(64, 100) : malloc(100);

        memset(kept, 1, 100);
        if (strcmp(mode, "aligned") != 0)
            free(malloc(200));
    }
    pthread_barrier_wait(&started);
    if (strcmp(mode, "left") == 0)
        syscall(SYS_exit, 0);
    pthread_barrier_wait(&forever);
    return mode;
}

int main(int argc, char **argv)
{
    int number;
    pthread_t thread;

    if (argc != 3)
        stage_fail("usage: cacheless RECORD MODE");
    stage_record(argv[1], sizeof(uint64_t));
    pthread_barrier_init(&started, NULL, THREADS + 1);
    pthread_barrier_init(&forever, NULL, THREADS + 1);
    free(malloc(100));
    for (number = 0; number < THREADS; number++)
        if (pthread_create(&thread, NULL, work, argv[2]) != 0)
            stage_fail("no thread");
    pthread_barrier_wait(&started);
    while (strcmp(argv[2], "left") == 0 && living() > 1)
        continue;
    stage_ready(1);
    for (;;)
        stage_command();
}
