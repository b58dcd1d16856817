#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
static __thread void *mine[40];
static pthread_barrier_t ready;
static void *work(void *argument)
{
    void *volatile local[300] = { malloc(5000), argument };
    mine[7] = malloc(6000);
    pthread_barrier_wait(&ready);
    for (;;) {
        pause();
        if (!local[0]) return local[1];
    }
}
int main(int argc, char **argv)
{
    pthread_t thread;
    void **(*place)(void) = (void **(*)(void)) dlsym(dlopen(argv[1], RTLD_NOW), "place");
    if (place) *place() = malloc(100);
    pthread_barrier_init(&ready, NULL, 3);
    for (int i = 0; i < 2; i++) pthread_create(&thread, NULL, work, malloc(7000));
    pthread_barrier_wait(&ready);
    puts("ready"); fflush(stdout);
    for (;;) pause();
}
