#include "heapx.h"
EXPORT void *heapx_mmapped_new(void) { return NULL; }
EXPORT int64_t heapx_mmapped_slice(void) { return 0; }
EXPORT uint64_t heapx_mmapped_result(void) { return 0; }
EXPORT void heapx_mmapped_free(void) {}
