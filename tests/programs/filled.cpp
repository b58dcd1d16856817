/* Strings and vectors that are not full: it writes down how many bytes of their blocks are in use. Most belong to objects in the heap, some
   to variables of the program; one of each is empty behind what it has reserved. */
#include "stage.h"

#include <cstdlib>
#include <string>
#include <vector>

enum { MANY = 4000, FEW = 50 };

struct Owner {
    std::string text;
    std::vector<long> numbers;
    long mark[4];
};

static Owner *volatile owners[MANY];
static std::vector<int> counts[FEW];
static std::vector<Owner *> all;
static std::string line;

int main(int, char **arguments)
{
    size_t texts = 0, numbers = 0;
    for (int i = 0; i < MANY; i++) {
        Owner *owner = new Owner();
        owner->text.reserve(100 + (size_t) i % 300);
        owner->text.append((size_t) (i % 90), 'x');
        owner->numbers.reserve(50 + (size_t) i % 100);
        for (long at = 0; at < 5 + i % 40; at++)
            owner->numbers.push_back(at * 3 + 1);
        texts += owner->text.size() + 1;
        numbers += owner->numbers.size() * sizeof(long);
        owners[i] = owner;
        all.push_back(owner);
    }
    for (int i = 0; i < FEW; i++) {
        counts[i].reserve(1000);
        for (int at = 0; at < i * 10; at++)
            counts[i].push_back(at);
        numbers += counts[i].size() * sizeof(int);
    }
    line.assign(200, 'y');
    texts += line.size() + 1;
    numbers += all.size() * sizeof(Owner *);
    FILE *told = fopen((std::string(arguments[1]) + ".told").c_str(), "w");
    fprintf(told, "%zu %zu\n", texts, numbers);
    fclose(told);
    puts("ready");
    fflush(stdout);
    return getchar() == 0;
}
