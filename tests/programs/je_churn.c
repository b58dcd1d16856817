/* je_churn RECORD THREADS

   THREADS threads that never rest: each makes and frees blocks of every size, through its cache and past it, so that slabs are made
   and given up, and extents split and joined, at any moment. */

#include "je_stage.h"

#define KEPT 400

static void *churn(void *argument)
{
    uint64_t random = 88172645463325252ULL + (uintptr_t)argument * 7919;
    void *kept[KEPT] = {0};

    for (;;) {
        void **one = kept + stage_random(&random) % KEPT;
        size_t size = stage_random(&random) % 4 ? stage_request(&random) : 4096 + stage_random(&random) % 400000;

        if (*one)
            je_dallocx(*one, stage_random(&random) % 2 ? 0 : JE_NO_TCACHE);
        *one = je_mallocx(size, stage_random(&random) % 2 ? 0 : JE_NO_TCACHE);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    unsigned i, threads;

    if (argc != 3)
        stage_fail("usage: je_churn RECORD THREADS");
    je_start();
    je_open_record(argv[1], 1);
    threads = (unsigned)atoi(argv[2]);
    for (i = 0; i < threads; i++) {
        pthread_t id;

        if (pthread_create(&id, NULL, churn, (void *)(uintptr_t)i) != 0)
            stage_fail("a thread cannot be made");
    }
    stage_ready(1);
    for (;;)
        stage_command();
}
