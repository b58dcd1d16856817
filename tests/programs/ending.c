/* A library whose thread-local storage is too large to be static: each thread that uses it has a block of malloc's for it. */

static __thread volatile char large[96 << 10];

void use_thread_local(unsigned number)
{
    for (unsigned i = 0; i < sizeof large; i += 64)
        large[i] = (char)(number + 1);
}
