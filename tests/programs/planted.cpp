/* planted RECORD NAME OBJECTS FILE

   OBJECTS objects of a class hang on a variable of the program, and 2,000 blocks on the stack of a thread that is called NAME; 8 MiB of FILE are
   mapped and in RAM. A test writes other names over those of the class and the variable, in the compiled file: as a program may have them
   that somebody made to be looked at. */

#include "stage.h"

#include <pthread.h>

enum { OF_THREAD = 2000, MAPPED = 8 << 20 };

struct Planted_class_name_that_a_test_will_overwrite_ {
    char room[2040];
    virtual ~Planted_class_name_that_a_test_will_overwrite_() {}
};

void **planted_variable_that_a_test_will_overwrite____;
static pthread_barrier_t barrier;

static void *hold(void *name)
{
    void *volatile of_thread[OF_THREAD];
    if (prctl(PR_SET_NAME, name, 0, 0, 0))
        stage_fail("cannot name the thread");
    for (int i = 0; i < OF_THREAD; i++)
        of_thread[i] = memset(malloc(3000), 0x81, 3000);
    pthread_barrier_wait(&barrier);
    for (;;)
        pause();
    return of_thread[0];
}

int main(int count, char **words)
{
    pthread_t thread;
    if (count < 5)
        stage_fail("planted RECORD NAME OBJECTS FILE");
    int file = open(words[4], O_RDWR), objects = atoi(words[3]);
    volatile char *mapped = (volatile char *)mmap(NULL, MAPPED, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
    if (file < 0 || mapped == MAP_FAILED)
        stage_fail("cannot map the file");
    for (long at = 0; at < MAPPED; at += 4096)
        mapped[at] = 1;
    pthread_barrier_init(&barrier, NULL, 2);
    if (pthread_create(&thread, NULL, hold, words[2]))
        stage_fail("no thread");
    planted_variable_that_a_test_will_overwrite____ = (void **)malloc(sizeof(void *) * (size_t)objects);
    for (int i = 0; i < objects; i++)
        planted_variable_that_a_test_will_overwrite____[i] = new Planted_class_name_that_a_test_will_overwrite_();
    pthread_barrier_wait(&barrier);
    stage_ready(1);
    return stage_command() == 0;
}
