/* Blocks that only pointers to their inside hold, by design of the C++ ABI and of old strings, and some that are so without one. */
#include <cstdio>
#include <cstdlib>
#include <unistd.h>

struct First { virtual ~First() {} long some[3]; };
struct Second { virtual ~Second() {} virtual void act() {} long more[2]; };
struct Both : First, Second { long last; void act() override {} };
struct Counted { long some[5]; ~Counted() { some[0] = 0; } };

static Second *volatile bases[50];
static Counted *volatile arrays[20];
static char *volatile strings[30];
static char *volatile others[10];

__attribute__((noinline)) static void fill()
{
    for (auto &one : bases)
        one = new Both;
    for (auto &one : arrays)
        one = new Counted[7];
    for (auto &one : strings) {
        auto rep = static_cast<size_t *>(calloc(1, 24 + 100 + 1));
        rep[0] = 50;
        rep[1] = 100;
        one = reinterpret_cast<char *>(rep + 3);
    }
    for (auto &one : others)
        one = static_cast<char *>(calloc(1, 200)) + 64;
}

__attribute__((noinline)) static void scrub()
{
    volatile char room[16 << 10];
    for (auto &one : room)
        one = 0;
}

int main()
{
    fill();
    scrub();
    if (write(1, "ready\n", 6) != 6)
        return 1;
    for (;;)
        pause();
}
