/* What is asked of each chunk, and of each member of a list, beyond what a walk counts. Numbers of glibc/check_records.py. */
#ifndef HEAPX_CHECK_H
#define HEAPX_CHECK_H

#include "chunk.h"

/* Of chunks (check.c). */
enum {
    BROKEN_PREV_SIZE, BROKEN_FREE_NEIGHBOURS, BROKEN_NOT_BINNED, BROKEN_BINNED_USED, BROKEN_BINNED_ASTRAY, BROKEN_LISTED_FREE,
    BROKEN_LISTED_ASTRAY, BROKEN_NON_MAIN, BROKEN_FREE_FLAGS, BROKEN_FIRST, BROKEN_STOP, BROKEN_RULES
};

/* Of members (members.c). */
enum { MEMBER_SIZE, MEMBER_KEY, MEMBER_ORDER, MEMBER_NEXTSIZE, MEMBER_LINK, MEMBER_RULES };

#define REGION_MAIN 1u          /* no chunk carries NON_MAIN_ARENA; without it all that were handed out do */
#define REGION_FIRST 2u         /* the first chunk has no chunk before it */
#define REGION_BINS_KNOWN 4u    /* a free chunk that is in no bin is wrong */

#define MOST_ROWS 64u           /* of each rule that are written out; all are counted */

/* One contradiction; read by place. */
struct broken {
    uint64_t rule, address, value, previous, previous_status;
};

#endif
