/* mi_remote RECORD: a thread allocates, another frees it all, and the owner sleeps. Its thread id is in the record. On the command c the
   owner calls mi_collect. */

#include "stage.h"
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/syscall.h>

#define COUNT 20000u

static void *blocks[COUNT];
static uint64_t *header;
static atomic_uint made, asked, done;

static void *own(void *argument)
{
    void (*collect)(int);
    unsigned i;

    (void)argument;
    for (i = 0; i < COUNT; i++) {
        blocks[i] = malloc(1000);
        if (!blocks[i])
            stage_fail("out of memory");
        memset(blocks[i], 1, 1000);
    }
    header[0] = (uint64_t)syscall(SYS_gettid);
    atomic_store(&made, 1);
    for (;;) {
        while (!atomic_load(&asked))
            usleep(1000);
        collect = (void (*)(int))dlsym(RTLD_DEFAULT, "mi_collect");
        if (!collect)
            stage_fail("there is no mi_collect");
        collect(1);
        atomic_store(&asked, 0);
        atomic_store(&done, 1);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t id;
    unsigned i;

    if (argc < 2)
        stage_fail("usage: mi_remote RECORD");
    header = stage_record(argv[1], 4096);
    if (pthread_create(&id, NULL, own, NULL) != 0)
        stage_fail("a thread cannot be made");
    while (!atomic_load(&made))
        usleep(1000);
    for (i = 0; i < COUNT; i++) {
        void *volatile memory = blocks[i];

        blocks[i] = NULL;
        free(memory);
    }
    stage_ready(1);
    for (;;) {
        stage_command();
        atomic_store(&asked, 1);
        while (!atomic_load(&done))
            usleep(1000);
        stage_ready(1);
    }
}
