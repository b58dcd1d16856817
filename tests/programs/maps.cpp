/* maps RECORD

   Two containers of maps that grow, shrink and reuse each other's memory, and count by themselves, in operator new and delete, what each of
   them has in use: usable bytes and blocks. A byte on standard input makes the first grow by 30,000 entries. The record: address, bytes,
   blocks and entries of the first, then of the second, the length of the list beside the first, and the address of the vector. */

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <list>
#include <malloc.h>
#include <map>
#include <mutex>
#include <new>
#include <string>
#include <sys/mman.h>
#include <unistd.h>
#include <unordered_map>
#include <vector>

static const size_t PLACES = 1 << 22;
enum Account { NOBODY, FIRST, SECOND, ACCOUNTS };
struct Entry {
    uintptr_t inverted;         /* so that no pointer to any block stands here */
    uintptr_t account;
};
static Entry *entries;
static Account at_work = NOBODY;
static long long bytes[ACCOUNTS], blocks[ACCOUNTS];

static Entry *entry_of(void *block)
{
    const uintptr_t inverted = ~(uintptr_t) block;
    size_t place = ((uintptr_t) block >> 4) * 0x9e3779b97f4a7c15ull % PLACES;
    while (entries[place].inverted && entries[place].inverted != inverted)
        place = (place + 1) % PLACES;
    entries[place].inverted = inverted;
    return &entries[place];
}

void *operator new(size_t size)
{
    void *block = malloc(size);
    if (!block)
        abort();
    if (entries) {
        entry_of(block)->account = at_work;
        bytes[at_work] += malloc_usable_size(block);
        blocks[at_work]++;
    }
    return block;
}

void operator delete(void *block) noexcept
{
    if (block && entries) {
        const uintptr_t account = entry_of(block)->account;
        bytes[account] -= malloc_usable_size(block);
        blocks[account]--;
    }
    free(block);
}

void operator delete(void *block, size_t) noexcept
{
    operator delete(block);
}

namespace gate {

struct Profile {
    std::string name, text;
    std::vector<Profile *> friends;     /* with room for more than there are */
    long seen;
};

struct Cache {
    std::mutex lock;
    long hits, misses;
    std::unordered_map<std::string, Profile> by_name;
    std::list<long> recent;
};

class ProfileResolver {
public:
    static Cache cache_;
};

class Sessions {
public:
    static std::unordered_map<long, Profile> table_;
    static std::map<long, std::string> by_time_;
    static std::vector<std::string> names_;
};

Cache ProfileResolver::cache_;
std::unordered_map<long, Profile> Sessions::table_;
std::map<long, std::string> Sessions::by_time_;
std::vector<std::string> Sessions::names_;

}

using gate::ProfileResolver;
using gate::Sessions;

static unsigned long state = 88172645463325252ul;

static unsigned long next_random()
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

/* Short ones lie in the string itself, long ones have a buffer that once was something else. */
static std::string text(long number)
{
    const size_t length = next_random() % 3 ? 20 + next_random() % 100 : next_random() % 15;
    std::string made(length, (char) ('a' + number % 26));
    if (length > 60)
        made.resize(length / 3);
    return made;
}

static void fill(gate::Profile &profile, gate::Profile *other, long number)
{
    profile.name = text(number);
    profile.text = text(number + 1);
    profile.friends.reserve(4 + number % 8);
    if (other)
        profile.friends.push_back(other);
    profile.seen = number;
}

static std::string key(long number)
{
    char made[64];
    snprintf(made, sizeof made, number % 2 ? "user-%ld" : "user-with-a-long-name-%ld", number);
    return made;
}

static void grow_first(long from, long to)
{
    at_work = FIRST;
    gate::Profile *before = nullptr;
    for (long i = from; i < to; i++) {
        gate::Profile &made = ProfileResolver::cache_.by_name[key(i)];
        fill(made, before, i);
        before = &made;
    }
    at_work = NOBODY;
}

static void grow_second(long from, long to)
{
    at_work = SECOND;
    gate::Profile *before = nullptr;
    for (long i = from; i < to; i++) {
        gate::Profile &made = Sessions::table_[i];
        fill(made, before, i);
        before = &made;
    }
    at_work = NOBODY;
}

/* What is left has no pointer to what goes. */
static void shrink(long from, long to)
{
    for (auto &one : ProfileResolver::cache_.by_name)
        one.second.friends.clear();
    for (auto &one : Sessions::table_)
        one.second.friends.clear();
    for (long i = from; i < to; i += 2) {
        ProfileResolver::cache_.by_name.erase(key(i));
        Sessions::table_.erase(i + 1);
    }
}

static void record(const char *path)
{
    FILE *file = fopen(path, "w");
    const unsigned long long words[] = {
        (unsigned long long) &ProfileResolver::cache_,
        (unsigned long long) bytes[FIRST],
        (unsigned long long) blocks[FIRST],
        ProfileResolver::cache_.by_name.size(),
        (unsigned long long) &Sessions::table_,
        (unsigned long long) bytes[SECOND],
        (unsigned long long) blocks[SECOND],
        Sessions::table_.size(),
        ProfileResolver::cache_.recent.size(),
        (unsigned long long) &Sessions::names_,
        Sessions::by_time_.size(),
    };
    if (!file || fwrite(words, sizeof words, 1, file) != 1 || fclose(file))
        exit(1);
    puts("ready");
    fflush(stdout);
}

int main(int, char **words)
{
    entries = (Entry *) mmap(nullptr, PLACES * sizeof *entries, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (entries == MAP_FAILED)
        return 1;
    for (long round = 0; round < 4; round++) {
        grow_first(round * 8000, (round + 1) * 8000);
        grow_second(round * 8000, (round + 1) * 8000);
        shrink(round * 4000, (round + 1) * 4000);
    }
    grow_second(32000, 40000);
    grow_first(32000, 40000);
    at_work = FIRST;
    for (long i = 0; i < 4096; i++)
        ProfileResolver::cache_.recent.push_back(i);
    at_work = NOBODY;
    for (long i = 0; i < 1000; i++)
        Sessions::by_time_[i] = text(i);
    Sessions::names_.resize(100, "a name that is too long for the string itself");
    record(words[1]);
    for (long from = 40000; getchar() != EOF; from += 30000) {
        grow_first(from, from + 30000);
        record(words[1]);
    }
    return 0;
}
