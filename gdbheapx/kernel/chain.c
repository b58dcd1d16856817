#include "heapx.h"
EXPORT void *heapx_chain_new(void) { return NULL; }
EXPORT int64_t heapx_chain_slice(void) { return 0; }
EXPORT uint64_t heapx_chain_found(void) { return 0; }
EXPORT void heapx_chain_free(void) {}
