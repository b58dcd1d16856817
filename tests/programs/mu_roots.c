/* mu_roots RECORD: chains of blocks of 60 bytes that hang from a variable, from thread-local storage, from pthread_setspecific and from the
   stack of the main thread and of three others; and 200 blocks that nothing points to, of which 70 point to one more each. */

#include "stage.h"
#include <pthread.h>

struct node {
    struct node *next;
    char rest[52];
};

static __thread struct node *volatile local;
static struct node *volatile global;
static pthread_key_t key;
static pthread_barrier_t barrier;

static struct node *chain(long count)
{
    struct node *first = NULL;

    while (count-- > 0) {
        struct node *volatile one = malloc(sizeof *one);

        memset(one, 0, sizeof *one);
        one->next = first;
        first = one;
    }
    return first;
}

static void *work(void *argument)
{
    long number = (long)argument;
    struct node *volatile mine = chain(100 + number);

    local = chain(200 + number);
    pthread_setspecific(key, chain(300 + number));
    pthread_barrier_wait(&barrier);
    for (;;)
        pause();
    return mine;
}

__attribute__((noinline)) static void lose(void)
{
    long i;

    for (i = 0; i < 200; i++) {
        struct node *volatile lost = chain(1);

        lost->next = i < 70 ? chain(1) : NULL;
        lost = NULL;
    }
}

int main(int argc, char **argv)
{
    struct node *volatile mine = chain(1000);
    pthread_t id;
    long i;

    if (argc != 2)
        stage_fail("usage: mu_roots RECORD");
    stage_record(argv[1], 8);
    pthread_key_create(&key, NULL);
    pthread_barrier_init(&barrier, NULL, 4);
    for (i = 0; i < 3; i++)
        if (pthread_create(&id, NULL, work, (void *)i) != 0)
            stage_fail("a thread cannot be made");
    local = chain(2000);
    pthread_setspecific(key, chain(3000));
    global = chain(4000);
    pthread_barrier_wait(&barrier);
    lose();
    stage_deepen();
    stage_forget_vectors();
    free(malloc(1));
    stage_ready(1);
    for (;;)
        stage_command();
    return mine != NULL;
}
