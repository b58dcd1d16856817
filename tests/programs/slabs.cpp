// slabs RECORD WAY: objects of three classes, made as LLVM's BumpPtrAllocator and protobuf's arenas do, and how many to RECORD.
// WAY: `mixed` (classes in any order), `runs` (each slab has objects of one class), `plain` (each object is malloc's), `tree` (records of any
// size that lead to one another, as C has them), `arrays` (no slabs: new T[n] as large as they would be, which lead to one another).

#include <cstdio>
#include <new>
#include <vector>

#include "stage.h"

namespace ast {

struct Node {
    virtual ~Node() {}
    virtual long value() const = 0;
};

struct Parm : Node {
    long name = 1, type = 2;
    long value() const override { return name; }
};

struct Call : Node {
    Node *callee = nullptr;
    long arguments[5] = {1, 2, 3, 4, 5};
    long value() const override { return arguments[0]; }
};

struct Literal : Node {
    long bits = 7;
    long value() const override { return bits; }
};

}

static const size_t SLAB = 65536;
static char *slab, *end;
static std::vector<char *> slabs;
static bool is_plain;

static void *take(size_t size)
{
    if (is_plain)
        return malloc(size);
    if (!slab || (size_t)(end - slab) < size) {
        slab = static_cast<char *>(malloc(SLAB));
        end = slab + SLAB;
        slabs.push_back(slab);
    }
    void *place = slab;
    slab += size;
    return place;
}

struct Record {
    Record *before, *parent;
    char text[8];
};

static std::vector<void *> roots;
static unsigned long seed = 5, made[4];

static unsigned draw(unsigned most)
{
    seed = seed * 6364136223846793005ul + 1442695040888963407ul;
    return (unsigned)(seed >> 33) % most;
}

static void objects(bool is_mixed)
{
    for (int number = 0; number < 30000; number++) {
        int which = is_mixed ? (int)draw(3) : number / 10000;
        ast::Node *node;
        if (which == 0)
            node = new (take(sizeof(ast::Parm))) ast::Parm;
        else if (which == 1)
            node = new (take(sizeof(ast::Call))) ast::Call;
        else
            node = new (take(sizeof(ast::Literal))) ast::Literal;
        made[which]++;
        if (!(number % 100))
            roots.push_back(node);
    }
}

static void tree()
{
    std::vector<Record *> all;
    for (int number = 0; number < 20000; number++) {
        Record *record = static_cast<Record *>(take(sizeof(Record) + 8 * draw(9)));
        record->before = all.empty() ? nullptr : all.back();
        record->parent = all.empty() ? nullptr : all[draw((unsigned)all.size())];
        memset(record->text, 'x', sizeof record->text);
        all.push_back(record);
        made[3]++;
    }
    roots.push_back(all.back());
}

static void arrays()
{
    const int length = SLAB / sizeof(ast::Call);
    std::vector<ast::Call *> all;
    for (int number = 0; number < 20; number++) {
        ast::Call *row = new ast::Call[length];
        all.push_back(row);
        for (int place = 0; place < length; place++)
            row[place].callee = &all[draw((unsigned)all.size())][draw((unsigned)length)];
    }
    for (ast::Call *row : all)
        roots.push_back(row);
}

int main(int argc, char **argv)
{
    if (argc != 3)
        stage_fail("usage: slabs RECORD mixed|runs|plain|tree|arrays");
    char way = argv[2][0];
    is_plain = way == 'p';
    if (way == 't')
        tree();
    else if (way == 'a')
        arrays();
    else
        objects(way != 'r');
    FILE *file = fopen(argv[1], "w");
    if (!file)
        stage_fail("cannot write the record");
    fprintf(file, "%lu ast::Parm\n%lu ast::Call\n%lu ast::Literal\n%lu records\n%zu slabs\n", made[0], made[1], made[2], made[3], slabs.size());
    fclose(file);
    stage_ready(1);
    for (;;)
        stage_command();
}
