/* census RECORD

   Makes objects of classes with vtables and writes to RECORD, as text, how many blocks each class has: `COUNT CLASS`. Among them are blocks
   that begin nearly so: with a string, with a number before an object, with a table of constants. */

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <unistd.h>
#include <vector>

namespace shop {
struct Item {
    long number = 1;
    virtual ~Item() {}
    virtual long price() const { return number; }
};
struct Named {
    const char *name = "name";
    virtual ~Named() {}
    virtual const char *called() const { return name; }
};
/* Two bases: two vtables in one object, and deleted by the second. */
struct Car : Item, Named {
    long wheels[3] = {4, 4, 4};
    long price() const override { return wheels[0]; }
};
} // namespace shop

template <class T, int N> struct Holder : shop::Item {
    T held[N];
};

namespace {
struct Hidden : shop::Item {
    long price() const override { return 3; }
};
} // namespace

/* No class of C++'s: */
struct Labelled {
    const char *label;
    long number[2];
};
struct Counted {
    long number;
    shop::Item item;
    long rest[16];
};
struct Table {
    long first, second, third;
};
static const Table tables[] = {{1, 2, 3}, {4, 5, 6}};
struct Tabled {
    const Table *table;
    long rest[3];
};

static char volatile large[3 * 4096] = "not written to";
extern const char constants[3 * 4096];
const char constants[3 * 4096] = "a page and more of them";

static std::vector<void *> all;

template <class T> static T *keep(T *made)
{
    all.push_back(made);
    return made;
}

int main(int, char **argv)
{
    std::FILE *record = std::fopen(argv[1], "w");
    all.reserve(1 << 17);
    for (int i = 0; i < 32768; i++)
        keep(new shop::Car);
    for (int i = 0; i < 1000; i++)
        keep(new Holder<int, 5>);
    for (int i = 0; i < 500; i++)
        keep(new Hidden);
    for (int i = 0; i < 300; i++)
        keep(new shop::Item[2 + i % 5]);
    for (int i = 0; i < 200; i++)
        keep(new Labelled{i % 2 ? "odd" : "even", {1, 2}});
    for (int i = 0; i < 200; i++)
        keep(new Counted{2 + i % 4, {}, {}});
    for (int i = 0; i < 100; i++)
        keep(new Tabled{&tables[1], {}});
    for (int i = 0; i < 2000; i++) /* gone, and the memory is somebody else's */
        delete static_cast<shop::Named *>(new shop::Car);
    for (int i = 0; i < 2000; i++)
        keep(static_cast<char *>(std::memset(std::malloc(40), i, 40)));
    std::fprintf(record, "32768 shop::Car\n1000 Holder<int, 5>\n500 (anonymous namespace)::Hidden\n300 shop::Item[]\n");
    std::fclose(record);
    large[0] = constants[(unsigned char)argv[0][0]];
    (void)!write(1, "ready\n", 6);
    char byte;
    while (read(0, &byte, 1) > 0) { /* and lets go of them */
        std::fill(all.begin(), all.end(), nullptr);
        (void)!write(1, "ready\n", 6);
    }
    return 0;
}
