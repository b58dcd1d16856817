/* Containers and C structures of known number, in memory that was never used before. */
#include <cstdio>
#include <cstdlib>
#include <map>
#include <set>
#include <string>
#include <unistd.h>
#include <vector>

enum { MANY = 5000, FEW = 300 };

struct Record {
    unsigned magic;     /* 'Task', as BIND writes it */
    unsigned state;
    char *note;
    Record *next;
    long more[4];
};

static std::map<long, std::string> *volatile by_number;
static std::set<std::string> *volatile names;
static std::vector<long> *volatile rows[FEW];
static Record *volatile records;
static char *volatile lines[FEW];
static void *volatile blanks[FEW];

int main()
{
    by_number = new std::map<long, std::string>;
    names = new std::set<std::string>;
    for (long i = 0; i < MANY; i++)
        (*by_number)[i] = std::string(30 + static_cast<size_t>(i % 50), 'x');
    for (long i = 0; i < MANY; i++)
        names->insert(std::to_string(1000000 + i));     /* short enough to lie in the nodes */
    for (auto &one : rows)
        one = new std::vector<long>(37, -1);
    for (long i = 0; i < FEW; i++) {
        auto one = static_cast<Record *>(calloc(1, sizeof(Record)));
        one->magic = 'T' << 24 | 'a' << 16 | 's' << 8 | 'k';
        one->state = 7;
        one->note = static_cast<char *>(calloc(1, 200));
        one->note[100] = 1;
        one->next = records;
        records = one;
        lines[i] = static_cast<char *>(calloc(1, 72));
        snprintf(lines[i], 72, "line %ld of a text that nobody has read", i);
        blanks[i] = calloc(1, 136);
    }
    write(1, "ready\n", 6);
    pause();
}
