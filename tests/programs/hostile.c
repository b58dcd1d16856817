/* hostile RECORD NAME
   A thread named NAME holds 2,000 blocks of 3,000 bytes from its stack, and a variable of the program 1,000 of 5,000: the one shows the thread's
   name, the other the program's. */
#include "stage.h"

#include <pthread.h>

enum { OF_THREAD = 2000, OF_PROGRAM = 1000 };

static void *volatile of_program[OF_PROGRAM];
static pthread_barrier_t barrier;

static void *made(size_t bytes)
{
    return memset(malloc(bytes), 0x81, bytes);
}

static void *hold(void *name)
{
    void *volatile of_thread[OF_THREAD];
    if (prctl(PR_SET_NAME, name, 0, 0, 0))
        stage_fail("cannot name the thread");
    for (int i = 0; i < OF_THREAD; i++)
        of_thread[i] = made(3000);
    pthread_barrier_wait(&barrier);
    for (;;)
        pause();
    return of_thread[0];
}

int main(int count, char **words)
{
    pthread_t thread;
    if (count < 3)
        stage_fail("hostile RECORD NAME");
    pthread_barrier_init(&barrier, NULL, 2);
    if (pthread_create(&thread, NULL, hold, words[2]))
        stage_fail("no thread");
    for (int i = 0; i < OF_PROGRAM; i++)
        of_program[i] = made(5000);
    pthread_barrier_wait(&barrier);
    stage_ready(1);
    return stage_command() == 0;
}
