/* A library with thread-local storage of its own, for dlopen. */
#include <stdlib.h>
#include <string.h>

static __thread char before[3000];
static __thread void *volatile held;

void **hold(size_t size)
{
    void *made = malloc(size);
    memset(made, 0, size);
    memset(before, 0, sizeof before);
    held = made;
    return (void **) &held;
}
