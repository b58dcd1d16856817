/* std_containers RECORD ELEMENTS THREADS: the containers of std::, and lists and trees with hooks in their elements as boost::intrusive has them. */
#include "truth.h"

#include <deque>
#include <forward_list>
#include <list>
#include <map>
#include <memory>
#include <new>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

void *operator new(size_t size)
{
    void *made = malloc(size);

    taken += malloc_usable_size(made);
    return made;
}

void operator delete(void *block) noexcept
{
    taken -= malloc_usable_size(block);
    free(block);
}

void operator delete(void *block, size_t) noexcept { operator delete(block); }

struct Object {
    long id;
    std::string text;
    explicit Object(long number) : id(number), text(40 + number % 60, 'a') {}
    virtual ~Object() {}
};
struct Wide : Object {
    long more[9];
    using Object::Object;
};
struct Hook { Hook *next, *prev; };
struct Hooked { long id; std::string text; Hook hook; };
struct Node { uintptr_t parent; Node *left, *right; };
struct Compact : Node { long id; std::string text; long more[3]; };
struct Cache {
    std::unordered_map<std::string, std::list<std::pair<std::string, std::string>>::iterator> index;
    std::list<std::pair<std::string, std::string>> order;
};

std::map<long, std::string> g_map;
std::set<std::string> g_set;
std::list<std::string> g_list;
std::forward_list<std::string> g_forward;
std::unordered_map<long, std::string> g_hash;
std::deque<std::string> g_deque;
std::vector<std::unique_ptr<Object>> g_objects;
std::map<long, std::shared_ptr<Object>> g_shared;
std::list<std::list<std::string>> g_lists;
std::map<long, std::map<long, std::string>> g_maps;
Cache *g_cache;
Hook g_hooks;
Compact *g_compact;

static std::string text(long number) { return std::string(40 + number % 60, 'a' + number % 26); }

template <typename T> static void *node(const T &value, size_t before) { return (char *)&value - before; }

static Compact *compact(long low, long high, Compact *parent)
{
    if (low >= high)
        return nullptr;
    long middle = (low + high) / 2;
    Compact *one = new Compact();
    one->text = text(middle);
    one->parent = reinterpret_cast<uintptr_t>(parent) | some(2);
    use(one);
    one->left = compact(low, middle, one);
    one->right = compact(middle + 1, high, one);
    return one;
}

static void build_std(long count)
{
    for (long i = 0; i < count; i++)
        use(node(*g_map.emplace(i * 7919 % 65537, text(i)).first, 32));
    OWNS(g_map);
    for (long i = 0; i < count; i++)
        use(node(*g_set.insert(text(i) + std::to_string(i)).first, 32));
    OWNS(g_set);
    for (long i = 0; i < count; i++) {
        g_list.push_back(text(i));
        use(node(g_list.back(), 16));
    }
    OWNS(g_list);
    for (long i = 0; i < count; i++) {
        g_forward.push_front(text(i));
        use(node(g_forward.front(), 8));
    }
    OWNS(g_forward);
    for (long i = 0; i < count; i++)
        use(node(*g_hash.emplace(i, text(i)).first, 8));
    OWNS(g_hash);
    for (long i = 0; i < count; i++)
        g_deque.push_back(text(i));
    OWNS(g_deque);
}

static void build_nested(long count)
{
    for (long i = 0; i < count; i++) {
        g_objects.emplace_back(i % 2 ? new Object(i) : new Wide(i));
        use(g_objects.back().get());
    }
    OWNS(g_objects);
    for (long i = 0; i < count; i++)
        use(g_shared.emplace(i, std::make_shared<Object>(i)).first->second.get());
    OWNS(g_shared);
    for (long i = 0; i < count; i++) {
        if (i % 50 == 0)
            g_lists.emplace_back();
        g_lists.back().push_back(text(i));
        use(node(g_lists.back().back(), 16));
    }
    OWNS(g_lists);
    for (long i = 0; i < count; i++)
        use(node(*g_maps[i / 50].emplace(i, text(i)).first, 32));
    OWNS(g_maps);
    g_cache = new Cache;
    for (long i = 0; i < count; i++) {
        g_cache->order.emplace_front(text(i), text(i + 5));
        g_cache->index[text(i) + std::to_string(i)] = g_cache->order.begin();
        use(node(g_cache->order.front(), 16));
    }
    OWNS(g_cache);
}

static void build_hooked(long count)
{
    g_hooks.next = g_hooks.prev = &g_hooks;
    for (long i = 0; i < count; i++) {
        Hooked *one = new Hooked();
        one->text = text(i);
        one->hook.next = &g_hooks;
        one->hook.prev = g_hooks.prev;
        g_hooks.prev->next = &one->hook;
        g_hooks.prev = &one->hook;
        use(one);
    }
    OWNS(g_hooks);
    g_compact = compact(0, count, nullptr);
    OWNS(g_compact);
}

int main(int argc, char **argv)
{
    if (argc != 4)
        stage_fail("usage: std_containers RECORD ELEMENTS THREADS");
    truth_begin(argv[1]);
    taken = 0;
    build_std(atol(argv[2]));
    build_nested(atol(argv[2]));
    build_hooked(atol(argv[2]));
    truth_ready(atoi(argv[3]));
}
