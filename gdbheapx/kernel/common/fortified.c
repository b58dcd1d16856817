/* What _FORTIFY_SOURCE has the compiler call instead of memcpy and its kin, for a library that also serves a libc without these. */
#ifdef HEAPX_PORTABLE
#undef _FORTIFY_SOURCE
#define _GNU_SOURCE
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

void *__memcpy_chk(void *to, const void *from, size_t size, size_t room);
void *__memmove_chk(void *to, const void *from, size_t size, size_t room);
void *__memset_chk(void *to, int value, size_t size, size_t room);
int __snprintf_chk(char *to, size_t size, int flag, size_t room, const char *format, ...);
ssize_t __read_chk(int fd, void *to, size_t size, size_t room);
ssize_t __pread_chk(int fd, void *to, size_t size, off_t at, size_t room);
int __poll_chk(struct pollfd *fds, nfds_t count, int timeout, size_t room);

static void check(size_t size, size_t room)
{
    if (size > room)
        __builtin_trap();
}

void *__memcpy_chk(void *to, const void *from, size_t size, size_t room)
{
    check(size, room);
    return memcpy(to, from, size);
}

void *__memmove_chk(void *to, const void *from, size_t size, size_t room)
{
    check(size, room);
    return memmove(to, from, size);
}

void *__memset_chk(void *to, int value, size_t size, size_t room)
{
    check(size, room);
    return memset(to, value, size);
}

int __snprintf_chk(char *to, size_t size, int flag, size_t room, const char *format, ...)
{
    va_list rest;
    (void) flag;
    check(size, room);
    va_start(rest, format);
    const int length = vsnprintf(to, size, format, rest);
    va_end(rest);
    return length;
}

ssize_t __read_chk(int fd, void *to, size_t size, size_t room)
{
    check(size, room);
    return read(fd, to, size);
}

ssize_t __pread_chk(int fd, void *to, size_t size, off_t at, size_t room)
{
    check(size, room);
    return pread(fd, to, size, at);
}

int __poll_chk(struct pollfd *fds, nfds_t count, int timeout, size_t room)
{
    check(count * sizeof *fds, room);
    return poll(fds, count, timeout);
}
#else
typedef int nothing_here;
#endif
