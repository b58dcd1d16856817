/* Containers and C structures of known number, in memory that was never used before. */
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <unistd.h>
#include <unordered_map>
#include <unordered_set>
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
static std::unordered_map<long, long> *volatile by_hash;
static std::unordered_set<std::string> *volatile hashed;
static std::list<long> ring;                            /* its end lies in data */
static std::list<long> *volatile rings[FEW];
static std::deque<long> *volatile queues[FEW];
static std::shared_ptr<Record> *volatile shared;
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
    by_hash = new std::unordered_map<long, long>;
    hashed = new std::unordered_set<std::string>;
    shared = new std::shared_ptr<Record>[FEW];
    for (long i = 0; i < MANY; i++) {
        (*by_hash)[i * 7] = i;
        hashed->insert(std::to_string(2000000 + i));
        ring.push_front(i);
    }
    for (long i = 0; i < FEW; i++) {
        rings[i] = new std::list<long>{i + 10, i + 11, i + 12};
        queues[i] = new std::deque<long>;
        for (long j = 0; j < 600; j++)                  /* ten buffers, of which the first two are given back */
            queues[i]->push_back(j);
        for (long j = 0; j < 128; j++)
            queues[i]->pop_front();
        shared[i] = std::make_shared<Record>();
    }
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
