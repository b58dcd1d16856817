/* Long work in one call, of which Python is asked now and then whether it is to go on. */
#ifndef HEAPX_PACE_H
#define HEAPX_PACE_H

#include "../common/heapx.h"

#define STEPS_AT_ONCE 65536u            /* between two looks at the clock */
#define LEAST_SECONDS 0.05              /* between two questions */

struct pace {
    stop_call is_over;                  /* NULL: nobody stops it */
    double next;
    uint64_t steps;
    int is_stopped;                     /* what is made by then is of no use */
};

/* So many steps more were done. 1: it is over, from now on. */
static inline int is_over(struct pace *pace, uint64_t steps)
{
    pace->steps += steps;
    if (pace->steps < STEPS_AT_ONCE || !pace->is_over)
        return pace->is_stopped;
    pace->steps = 0;
    const double now = clock_now();
    if (now >= pace->next) {
        pace->is_stopped |= pace->is_over();
        pace->next = now + LEAST_SECONDS;
    }
    return pace->is_stopped;
}

#endif
