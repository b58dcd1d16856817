/* hoarder serve SOCKET | hoarder ask SOCKET

   A small server that hoards memory the way real ones do. Its workers load a first wave of sessions, then a second one, then
   drop the first: the free memory lies below the second wave, inside the heaps, where it stays. Small blocks die in the
   workers' thread caches. `ask` is a client: it prints what the server answers. */

#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define WORKERS 6
#define SESSIONS 12000

struct session {
    char *name, *request, *answer;
};

static pthread_barrier_t loaded;

static char *text(unsigned *seed, unsigned least, unsigned most)
{
    size_t size = least + (unsigned)rand_r(seed) % (most - least);
    char *made = malloc(size);

    if (!made)
        abort();
    return memset(made, 'x', size);
}

static void load(struct session **wave, unsigned *seed)
{
    for (int i = 0; i < SESSIONS; i++) {
        wave[i] = malloc(sizeof *wave[i]);
        wave[i]->name = text(seed, 8, 60);
        wave[i]->request = text(seed, 100, 900);
        wave[i]->answer = text(seed, 300, 3000);
    }
}

static void drop(struct session **wave)
{
    for (int i = 0; i < SESSIONS; i++) {
        free(wave[i]->answer);
        free(wave[i]->request);
        free(wave[i]->name);
        free(wave[i]);
    }
    free(wave);
}

static void *work(void *number)
{
    unsigned seed = 7 + (unsigned)(size_t)number;
    struct session **first = calloc(SESSIONS, sizeof *first);
    struct session **second = calloc(SESSIONS, sizeof *second);

    load(first, &seed);
    load(second, &seed);
    drop(first);
    pthread_barrier_wait(&loaded);
    for (;;) /* the second wave lives on, as the sessions of today do */
        pause();
    return second;
}

static int open_socket(const char *path, struct sockaddr_un *address)
{
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);

    memset(address, 0, sizeof *address);
    address->sun_family = AF_UNIX;
    snprintf(address->sun_path, sizeof address->sun_path, "%s", path);
    return fd;
}

static int ask(const char *path)
{
    struct sockaddr_un address;
    int fd = open_socket(path, &address);
    char answer[200];
    ssize_t length;

    if (connect(fd, (struct sockaddr *)&address, sizeof address) != 0) {
        perror(path);
        return 1;
    }
    length = read(fd, answer, sizeof answer);
    return length > 0 && write(1, answer, (size_t)length) == length ? 0 : 1;
}

static int serve(const char *path)
{
    struct sockaddr_un address;
    int fd = open_socket(path, &address);
    unsigned served = 0;

    pthread_barrier_init(&loaded, NULL, WORKERS + 1);
    for (size_t i = 0; i < WORKERS; i++) {
        pthread_t id;
        char name[16];

        if (pthread_create(&id, NULL, work, (void *)i) != 0)
            return 1;
        snprintf(name, sizeof name, "worker-%zu", i);
        pthread_setname_np(id, name);
    }
    pthread_barrier_wait(&loaded);
    unlink(path);
    if (bind(fd, (struct sockaddr *)&address, sizeof address) != 0 || listen(fd, 8) != 0) {
        perror(path);
        return 1;
    }
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0); /* any debugger of this user may attach, yama or not */
    if (write(1, "ready\n", 6) != 6)
        return 1;
    for (;;) {
        int client = accept(fd, NULL, NULL);

        dprintf(client, "request %u answered, %d sessions held\n", ++served, WORKERS * SESSIONS);
        close(client);
    }
}

int main(int argc, char **argv)
{
    if (argc == 3 && !strcmp(argv[1], "serve"))
        return serve(argv[2]);
    if (argc == 3 && !strcmp(argv[1], "ask"))
        return ask(argv[2]);
    fprintf(stderr, "usage: hoarder serve|ask SOCKET\n");
    return 2;
}
