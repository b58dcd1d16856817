/* What is asked of each chunk, and of each member of a list, beyond what a walk counts. Numbers of glibc/check_records.py. */
#ifndef HEAPX_CHECK_H
#define HEAPX_CHECK_H

#include "chunk.h"

/* One contradiction; read by place. */
struct broken {
    uint64_t rule, address, value, previous, previous_status;
};

#endif
