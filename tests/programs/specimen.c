#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <sys/syscall.h>
int specimen_global = 0x5eed;
static int hidden_static = 0x5eed;
static __thread long local_exec = 0x7e57;
static long *(*where)(void);
static pthread_barrier_t told;
static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;
static void tell(const char *end) {
    pthread_mutex_lock(&turn);
    printf("{\"lwp\": %ld, \"local_exec\": %ld, \"plugin_tls\": %ld}%s", (long)syscall(SYS_gettid), (long)&local_exec, (long)where(), end);
    pthread_mutex_unlock(&turn);
}
static void *work(void *unused) { tell(", "); pthread_barrier_wait(&told); pause(); return unused; }
int main(int argc, char **argv) {
    pthread_t thread;
    void *plugin = dlopen(argv[1], RTLD_NOW);
    where = (long *(*)(void))dlsym(plugin, "plugin_where");
    pthread_barrier_init(&told, 0, 4);
    printf("{\"malloc\": %ld, \"getpid\": %ld, \"specimen_global\": %ld, \"hidden_static\": %ld, \"plugin_where\": %ld, \"pid\": %d, \"threads\": [",
        (long)dlsym(RTLD_DEFAULT, "malloc"), (long)dlsym(RTLD_DEFAULT, "getpid"), (long)&specimen_global, (long)&hidden_static, (long)where, (int)getpid());
    for (int i = 0; i < 3; i++) pthread_create(&thread, 0, work, 0);
    pthread_barrier_wait(&told);
    tell("]}\n");
    fflush(stdout);
    pause();
    return argc + (int)local_exec;
}
