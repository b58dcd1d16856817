/* flux RECORD THREADS: five lists that threads change without pause, each held by one global, and what each holds while all is in it. */
#include "truth.h"

#include <sys/queue.h>

#define COUNT 3000

struct pair { struct pair *prev, *next; char *text; long more[3]; };
struct queued { char *text; long more[4]; TAILQ_ENTRY(queued) link; };
struct link { struct link *next, *prev; };
struct used { long more[6]; char *text; struct link link; };
struct single { struct single *next; char *text; long more[9]; };
struct waiting { char *text; long more[11]; STAILQ_ENTRY(waiting) link; };

struct pair *g_pairs;
TAILQ_HEAD(, queued) g_queued;
struct link g_used;
struct single *g_singles;
STAILQ_HEAD(, waiting) g_waiting;
static pthread_mutex_t locks[5]; /* all zero: as PTHREAD_MUTEX_INITIALIZER */

/* Work on an element, or between two stores. */
static void spend(int turns)
{
    for (volatile int i = 0; i < turns; i++)
        ;
}

static void turn_pairs(void)
{
    pthread_mutex_lock(&locks[0]);
    struct pair *one = g_pairs;
    g_pairs = one->next;
    spend(30);
    g_pairs->prev = NULL;
    pthread_mutex_unlock(&locks[0]);
    spend(60);
    pthread_mutex_lock(&locks[0]);
    one->prev = NULL;
    one->next = g_pairs;
    spend(30);
    g_pairs->prev = one;
    spend(30);
    g_pairs = one;
    pthread_mutex_unlock(&locks[0]);
}

static void turn_queued(void)
{
    pthread_mutex_lock(&locks[1]);
    struct queued *one = TAILQ_FIRST(&g_queued);
    TAILQ_REMOVE(&g_queued, one, link);
    pthread_mutex_unlock(&locks[1]);
    spend(60);
    pthread_mutex_lock(&locks[1]);
    TAILQ_INSERT_TAIL(&g_queued, one, link);
    pthread_mutex_unlock(&locks[1]);
}

static void turn_used(void)
{
    pthread_mutex_lock(&locks[2]);
    struct link *one = g_used.next;
    for (uintptr_t skipped = some(50); skipped; skipped--)
        one = one->next;
    one->prev->next = one->next;
    spend(30);
    one->next->prev = one->prev;
    spend(30);
    one->next = g_used.next;
    one->prev = &g_used;
    g_used.next->prev = one;
    spend(30);
    g_used.next = one;
    pthread_mutex_unlock(&locks[2]);
}

static void turn_singles(void)
{
    pthread_mutex_lock(&locks[3]);
    struct single *one = g_singles;
    g_singles = one->next;
    pthread_mutex_unlock(&locks[3]);
    spend(90);
    pthread_mutex_lock(&locks[3]);
    one->next = g_singles;
    spend(30);
    g_singles = one;
    pthread_mutex_unlock(&locks[3]);
}

static void turn_waiting(void)
{
    pthread_mutex_lock(&locks[4]);
    struct waiting *one = STAILQ_FIRST(&g_waiting);
    STAILQ_REMOVE_HEAD(&g_waiting, link);
    pthread_mutex_unlock(&locks[4]);
    spend(90);
    pthread_mutex_lock(&locks[4]);
    STAILQ_INSERT_TAIL(&g_waiting, one, link);
    pthread_mutex_unlock(&locks[4]);
}

static void *change(void *number)
{
    void (*const turns[])(void) = {turn_pairs, turn_queued, turn_used, turn_singles, turn_waiting};

    while (usleep(100) == 0) /* a machine of two processors has others to serve, too */
        for (int turn = 0; turn < 100; turn++)
            turns[(intptr_t)number % 5]();
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t thread;

    if (argc != 3)
        stage_fail("usage: flux RECORD THREADS");
    truth_begin(argv[1]);
    used_of_1000 = 0;
    for (int i = 0; i < COUNT; i++) {
        struct pair *one = take(sizeof *one);
        one->text = take_text(80);
        one->next = g_pairs;
        if (g_pairs)
            g_pairs->prev = one;
        g_pairs = one;
    }
    OWNS(g_pairs);
    TAILQ_INIT(&g_queued);
    for (int i = 0; i < COUNT; i++) {
        struct queued *one = take(sizeof *one);
        one->text = take_text(80);
        TAILQ_INSERT_TAIL(&g_queued, one, link);
    }
    OWNS(g_queued);
    g_used.next = g_used.prev = &g_used;
    for (int i = 0; i < COUNT; i++) {
        struct used *one = take(sizeof *one);
        one->text = take_text(80);
        one->link.next = &g_used;
        one->link.prev = g_used.prev;
        g_used.prev->next = &one->link;
        g_used.prev = &one->link;
    }
    OWNS(g_used);
    for (int i = 0; i < COUNT; i++) {
        struct single *one = take(sizeof *one);
        one->text = take_text(80);
        one->next = g_singles;
        g_singles = one;
    }
    OWNS(g_singles);
    STAILQ_INIT(&g_waiting);
    for (int i = 0; i < COUNT; i++) {
        struct waiting *one = take(sizeof *one);
        one->text = take_text(80);
        STAILQ_INSERT_TAIL(&g_waiting, one, link);
    }
    OWNS(g_waiting);
    for (intptr_t i = 0; i < atoi(argv[2]); i++)
        if (pthread_create(&thread, NULL, change, (void *)i) != 0)
            stage_fail("no thread");
    truth_ready(0);
}
