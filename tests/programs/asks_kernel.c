#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <pthread.h>
int main(int count, char **words)
{
    pthread_mutex_t needs_libpthread; /* as Python does: glibc before 2.34 has it apart */
    pthread_mutex_init(&needs_libpthread, NULL);
    void *kernel = dlopen(words[count - 1], RTLD_NOW);
    if (!kernel)
        return fprintf(stderr, "%s\n", dlerror()), 1;
    uint64_t numbers[] = {3, 1, 2};
    int (*sort)(uint64_t *, uint64_t) = (int (*)(uint64_t *, uint64_t)) dlsym(kernel, "heapx_sort");
    uint32_t (*abi)(void) = (uint32_t (*)(void)) dlsym(kernel, "heapx_abi");
    sort(numbers, 3);
    printf("%u %u%u%u\n", abi(), (unsigned) numbers[0], (unsigned) numbers[1], (unsigned) numbers[2]);
    return 0;
}
