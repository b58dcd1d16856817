/* names RECORD FILE... -- NAME...

   Uses 5,000 blocks of a class and 3,000 that a global holds, maps each FILE, and starts a thread of each NAME (15 bytes), which uses memory
   and waits. The symbols of class and global are there to be renamed by objcopy. The file has its name from the test. */

#include <fcntl.h>
#include <pthread.h>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

struct Named {
    char bytes[120];
    virtual ~Named() {}
    virtual void hello() {}
};

static const int OBJECTS = 5000, HELD = 3000;
Named *objects[OBJECTS];
extern "C" {
void **holding;
}
static pthread_barrier_t all;

static void *named(void *name)
{
    prctl(PR_SET_NAME, (unsigned long) name, 0, 0, 0);
    void *volatile own = malloc(200000);
    memset(own, 1, 200000);
    pthread_barrier_wait(&all);
    for (;;)
        pause();
    return own;
}

int main(int count, char **words)
{
    int at = 2;
    for (; at < count && strcmp(words[at], "--"); at++) {
        int file = open(words[at], O_RDWR);
        char *mapped = (char *) mmap(nullptr, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
        if (file < 0 || mapped == MAP_FAILED)
            return 1;
        memset(mapped, 'x', 65536);
    }
    for (auto &one : objects)
        one = new Named;
    holding = (void **) malloc(HELD * sizeof *holding);
    for (int i = 0; i < HELD; i++)
        memset(holding[i] = malloc(300), 1, 300);
    pthread_barrier_init(&all, nullptr, count - at);
    for (at++; at < count; at++) {
        pthread_t thread;
        if (pthread_create(&thread, nullptr, named, words[at]))
            return 1;
    }
    pthread_barrier_wait(&all);
    puts("ready");
    fflush(stdout);
    getchar();
}
