/* classes RECORD

   Makes an object of each kind of class and writes to RECORD, as text, the load bias of the executable and for each part of each object that
   points to a vtable: that pointer, where the part begins in the object, and the class as the source calls it. The last is a class of the
   library, whose vtable is copied into an executable at a fixed address. Compiled with -fno-rtti it has no type_infos. */

#include <cstdio>
#include <elf.h>
#include <link.h>
#include <map>
#include <new>
#include <string>
#include <unistd.h>
#include <utility>

namespace plain {
struct Base {
    long number = 1;
    virtual ~Base() {}
    virtual void hello() {}
};
struct Other {
    long number = 2;
    virtual ~Other() {}
    virtual void world() {}
};
struct Derived : Base {
    void hello() override {}
};
/* Two bases: two vtables in one object. */
struct Both : Base, Other {
    void world() override {}
};
struct Abstract {
    virtual ~Abstract() = 0;
    virtual void missing() = 0;
};
Abstract::~Abstract() {}
struct Concrete : Abstract {
    void missing() override {}
};
/* A virtual base: the vtable begins with its place, so the address point is not two words in. */
struct Left : virtual Base {
    long left = 3;
};
struct Right : virtual Base {
    long right = 4;
};
struct Diamond : Left, Right {
    void hello() override {}
};
} // namespace plain

template <class T, int N> struct Holder : plain::Base {
    T held[N];
    void hello() override {}
};

namespace {
struct Hidden : plain::Base {
    void hello() override {}
};
} // namespace

struct Outer {
    struct Inner : plain::Other {
        void world() override {}
    };
};

static std::FILE *record;

static int bias(struct dl_phdr_info *info, size_t, void *)
{
    std::fprintf(record, "bias %zx\n", (size_t)info->dlpi_addr);
    return 1; /* the executable is the first */
}

template <class Whole, class Part> static void note(const char *name)
{
    Whole *whole = new Whole;
    Part *part = whole;
    std::fprintf(record, "%zx %zu %s\n", *(size_t *)part, (size_t)((char *)part - (char *)whole), name);
}

int main(int, char **argv)
{
    struct Local : plain::Base {
        void hello() override {}
    };

    record = std::fopen(argv[1], "w");
    dl_iterate_phdr(bias, nullptr);
    note<plain::Base, plain::Base>("plain::Base");
    note<plain::Derived, plain::Base>("plain::Derived");
    note<plain::Both, plain::Base>("plain::Both");
    note<plain::Both, plain::Other>("plain::Both");
    note<plain::Concrete, plain::Abstract>("plain::Concrete");
    note<plain::Diamond, plain::Left>("plain::Diamond");
    note<plain::Diamond, plain::Right>("plain::Diamond");
    note<plain::Diamond, plain::Base>("plain::Diamond");
    note<Holder<int, 3>, plain::Base>("Holder<int, 3>");
    note<Holder<std::pair<char, plain::Other>, 2>, plain::Base>("Holder<std::pair<char, plain::Other>, 2>");
    note<Holder<std::map<std::string, long>, 1>, plain::Base>(
        "Holder<std::map<std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> >, long, "
        "std::less<std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> > >, "
        "std::allocator<std::pair<std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> > const, long> > >, 1>");
    note<Hidden, plain::Base>("(anonymous namespace)::Hidden");
    note<Outer::Inner, plain::Other>("Outer::Inner");
    note<Local, plain::Base>("main::Local");
    std::fprintf(record, "%zx 0 std::bad_alloc\n", *(size_t *)new std::bad_alloc);
    std::fclose(record);
    (void)!write(1, "ready\n", 6);
    char byte;
    while (read(0, &byte, 1) > 0)
        ;
    return 0;
}
