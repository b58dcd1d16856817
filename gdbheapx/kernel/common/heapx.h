/* What the C files of the kernel share. Plain C99 and pthreads; nothing here knows Python.

   Every address and size is a uint64_t, whatever the target's and this machine's word size. Reads give the readable
   prefix of a range; nothing trusts a number that came out of the target before it was compared with the bounds. */
#ifndef HEAPX_H
#define HEAPX_H

#include "memory.h"
#include "pagemap.h"
#include "window.h"

#endif
