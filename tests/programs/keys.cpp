/* keys RECORD SEED

   Containers in containers, after rehashing, erasing and moving. The record: "address path", one a line, of blocks and of what lies in
   them, each as the program itself writes it, with the offsets that the compiler chose; "address = name" of each variable; and "address ?"
   of what lies under keys that nothing proves. */

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

using std::string;
using std::to_string;

struct Session {
    string name;
    std::vector<int> numbers;
    std::map<string, std::unique_ptr<int>> parts;
    explicit Session(const string &of) : name(of + " is a name that has a block of its own"), numbers(10, 7)
    {
        for (int i = 0; i < 2; i++)
            parts[of + to_string(i)] = std::make_unique<int>(i);
    }
    virtual ~Session() = default;
};
struct Node {
    long id;
    string text;
    std::unique_ptr<Node> next;
};
struct Row {
    int number;
    string name;
    std::vector<long> values;
};
struct Service {
    long started = 1;
    std::unordered_map<string, Session> cache;
    std::deque<string> lines;
};

std::unordered_map<string, std::vector<Session *>> g_sessions;
std::map<int, std::unique_ptr<Node>> g_nodes;
std::deque<Session *> g_queue;
std::deque<string> g_lines;
std::list<string> g_list;
std::set<string> g_names;
std::unordered_set<string> g_seen;
std::vector<std::vector<string>> g_rows;
std::vector<std::unique_ptr<Session>> g_pointers;
std::vector<std::shared_ptr<Session>> g_shared;
std::vector<Row> g_structs;
std::unordered_map<int, string> g_index;
std::unordered_map<long, std::unique_ptr<Node>> g_by_id;
std::map<string, std::map<string, Session *>> g_nested;
std::unordered_map<string, std::list<string>> g_lists;
Service g_service, *g_other;

/* Nothing proves what these have as keys, or that their elements are no single pointers. */
struct Point {
    int x, y;
    bool operator==(const Point &other) const { return x == other.x && y == other.y; }
    bool operator<(const Point &other) const { return x < other.x || (x == other.x && y < other.y); }
};
struct Label {
    string text;
    long number;
    bool operator==(const Label &other) const { return text == other.text && number == other.number; }
    bool operator<(const Label &other) const { return text < other.text || (text == other.text && number < other.number); }
};
struct Mixed {
    size_t operator()(const Point &one) const { return (size_t) one.x * 31 + (size_t) one.y; }
    size_t operator()(const Label &one) const { return std::hash<string>()(one.text) * 31 + (size_t) one.number; }
};
std::map<double, std::unique_ptr<Node>> g_doubles;
std::map<float, std::unique_ptr<Node>> g_floats;
std::map<Point, std::unique_ptr<Node>> g_points;
std::map<Label, std::unique_ptr<Node>> g_labels;
std::multimap<string, std::unique_ptr<Node>> g_several;
std::unordered_map<Point, std::unique_ptr<Node>, Mixed> g_hashed_points;
std::unordered_map<Label, std::unique_ptr<Node>, Mixed> g_hashed_labels;
std::unordered_map<double, std::unique_ptr<Node>> g_hashed_doubles;
std::vector<std::pair<Session *, Node *>> g_pairs;

static FILE *file;

static void tell(const void *address, const string &path)
{
    fprintf(file, "%lx %s\n", (unsigned long) address, path.c_str());
}

static string quoted(const string &text)
{
    return "[\"" + text + "\"]";
}

static string at(size_t place)
{
    return "[" + to_string(place) + "]";
}

static string away(const void *base, const void *member, const char *form)
{
    char text[32];
    snprintf(text, sizeof text, form, (unsigned long) member - (unsigned long) base);
    return text;
}

#define POINTED " -> +0x%lx"
#define MEMBER ".+0x%lx"

static bool is_long(const string &text)
{
    return text.capacity() >= sizeof(string) / 2;
}

static void tell_text(const string &text, const string &path)
{
    if (is_long(text))
        tell(text.data(), path);
}

static void tell_key(const string &key, const string &path)
{
    tell(&key, path + quoted(key));
    if (is_long(key))
        tell(key.data(), path + ".<key \"" + key + "\">");
}

static void tell_session(const Session *session, const string &path, const char *form = POINTED)
{
    tell(session, path);
    tell_text(session->name, path + away(session, &session->name, form));
    tell(session->numbers.data(), path + away(session, &session->numbers, form));
    for (auto &one : session->parts) {
        tell_key(one.first, path + away(session, &session->parts, form));
        tell(one.second.get(), path + away(session, &session->parts, form) + quoted(one.first));
    }
}

static void tell_node(const Node *node, const string &path)
{
    for (string here = path; node; here += away(node, &node->next, POINTED), node = node->next.get()) {
        tell(node, here);
        tell_text(node->text, here + away(node, &node->text, POINTED));
    }
}

static void tell_maps()
{
    for (auto &one : g_sessions) {
        const string path = "g_sessions" + quoted(one.first);
        tell_key(one.first, "g_sessions");
        if (one.second.size())
            tell(one.second.data(), path);
        for (size_t i = 0; i < one.second.size(); i++)
            tell_session(one.second[i], path + at(i));
    }
    for (auto &one : g_nodes) {
        tell(&one, "g_nodes[" + to_string(one.first) + "]");
        tell_node(one.second.get(), "g_nodes[" + to_string(one.first) + "]");
    }
    for (auto &one : g_names)
        tell_key(one, "g_names");
    for (auto &one : g_seen)
        tell_key(one, "g_seen");
    for (auto &one : g_index) {
        tell(&one, "g_index[" + to_string(one.first) + "]");
        tell_text(one.second, "g_index[" + to_string(one.first) + "]");
    }
    for (auto &one : g_by_id) {
        tell(&one, "g_by_id[" + to_string(one.first) + "]");
        tell_node(one.second.get(), "g_by_id[" + to_string(one.first) + "]");
    }
    for (auto &one : g_nested) {
        tell_key(one.first, "g_nested");
        for (auto &two : one.second) {
            tell_key(two.first, "g_nested" + quoted(one.first));
            tell_session(two.second, "g_nested" + quoted(one.first) + quoted(two.first));
        }
    }
    for (auto &one : g_lists) {
        size_t place = 0;
        tell_key(one.first, "g_lists");
        for (auto &two : one.second) {
            tell(&two, "g_lists" + quoted(one.first) + at(place));
            tell_text(two, "g_lists" + quoted(one.first) + at(place++));
        }
    }
}

static void tell_sequences()
{
    size_t place = 0;
    for (size_t i = 0; i < g_queue.size(); i++)
        tell_session(g_queue[i], "g_queue" + at(i));
    for (size_t i = 0; i < g_lines.size(); i++)
        tell_text(g_lines[i], "g_lines" + at(i));
    for (auto &one : g_list) {
        tell(&one, "g_list" + at(place));
        tell_text(one, "g_list" + at(place++));
    }
    for (size_t i = 0; i < g_rows.size(); i++) {
        if (g_rows[i].size())
            tell(g_rows[i].data(), "g_rows" + at(i));
        for (size_t j = 0; j < g_rows[i].size(); j++)
            tell_text(g_rows[i][j], "g_rows" + at(i) + at(j));
    }
    for (size_t i = 0; i < g_pointers.size(); i++)
        tell_session(g_pointers[i].get(), "g_pointers" + at(i));
    for (size_t i = 0; i < g_shared.size(); i++)
        tell(g_shared[i].get(), "g_shared" + at(i));
    for (size_t i = 0; i < g_structs.size(); i++) {
        tell_text(g_structs[i].name, "g_structs" + at(i) + away(&g_structs[i], &g_structs[i].name, MEMBER));
        tell(g_structs[i].values.data(), "g_structs" + at(i) + away(&g_structs[i], &g_structs[i].values, MEMBER));
    }
}

static void tell_service(const Service &service, const string &name, const char *form)
{
    const string cache = name + away(&service, &service.cache, form), lines = name + away(&service, &service.lines, form);
    for (auto &one : service.cache) {
        tell_key(one.first, cache);
        const string path = cache + quoted(one.first);
        tell_text(one.second.name, path + away(&one.second, &one.second.name, MEMBER));
        tell(one.second.numbers.data(), path + away(&one.second, &one.second.numbers, MEMBER));
        for (auto &two : one.second.parts)
            tell(two.second.get(), path + away(&one.second, &one.second.parts, MEMBER) + quoted(two.first));
    }
    for (size_t i = 0; i < service.lines.size(); i++)
        tell_text(service.lines[i], lines + at(i));
}

static void tell_variables()
{
#define NAMED(variable) fprintf(file, "%lx = " #variable "\n", (unsigned long) &variable)
    NAMED(g_sessions), NAMED(g_nodes), NAMED(g_queue), NAMED(g_lines), NAMED(g_list), NAMED(g_names), NAMED(g_seen), NAMED(g_rows);
    NAMED(g_pointers), NAMED(g_shared), NAMED(g_structs), NAMED(g_index), NAMED(g_by_id), NAMED(g_nested), NAMED(g_lists);
    NAMED(g_service), NAMED(g_other);
}

template <class Map> static void tell_unproven(const Map &map)
{
    for (auto &one : map)
        tell(one.second.get(), "?");
}

static std::mt19937 chance;

static string key(int number)
{
    return chance() % 3 ? "u:" + to_string(number) : "a key that is longer than a string has room for: " + to_string(number);
}

static std::unique_ptr<Node> node(long number)
{
    std::unique_ptr<Node> next = number % 4 ? nullptr : std::make_unique<Node>(Node{number, "the next of another node", nullptr});
    return std::make_unique<Node>(Node{number, "the text of a node: " + to_string(number), std::move(next)});
}

static void fill(Service &service, int count)
{
    for (int i = 0; i < count; i++) {
        const string name = key(i);
        service.cache.try_emplace(name, name);
        service.lines.push_back("a line of a service that has a number: " + to_string(i));
    }
    for (int i = 0; i < count / 3; i++)
        service.lines.pop_front();
}

template <class Map> static void thin(Map &map)
{
    for (auto one = map.begin(); one != map.end();)
        one = chance() % 3 ? std::next(one) : map.erase(one);
}

static void fill_maps()
{
    for (int i = 0; i < 300; i++) {
        const string name = key(i);
        for (unsigned j = chance() % 5; j; j--)
            g_sessions[name].push_back(new Session(name));
        g_nodes[i * 3 - 100] = node(i);
        g_names.insert(key(i)), g_seen.insert(key(i));
        g_index[(int) chance() % 100000] = "a text of the index of some numbers: " + to_string(i);
        g_by_id[i * 1000003L] = node(i);
        g_nested[key(i % 20)][key(i)] = new Session("nested");
        for (int j = 0; j < i % 4; j++)
            g_lists[key(i)].push_back("in a list of a map: " + to_string(j));
    }
    for (auto &one : g_sessions)
        if (chance() % 4 == 0 && one.second.size())
            delete one.second.back(), one.second.pop_back();
    thin(g_nodes), thin(g_names), thin(g_seen), thin(g_index), thin(g_by_id), thin(g_lists);
    for (int i = 0; i < 50; i++)
        g_nodes[i * 7 + 2000] = node(i);
    g_seen.rehash(5000), g_index.max_load_factor(3), g_index.rehash(0);
}

static void fill_sequences()
{
    for (int i = 0; i < 400; i++) {
        g_queue.push_back(new Session("queued"));
        g_lines.push_back("a line that is longer than a string: " + to_string(i));
        g_list.push_back("an entry of the list: " + to_string(i));
        g_structs.push_back({i, "a name of a struct, " + to_string(i), {1, 2, 3}});
        g_pointers.push_back(std::make_unique<Session>("pointed"));
        g_shared.push_back(std::make_shared<Session>("shared"));
        g_rows.emplace_back();
        for (unsigned j = chance() % 5; j; j--)
            g_rows.back().push_back(chance() % 2 ? "short" : "a text that is not short: " + to_string(j));
    }
    for (int i = 0; i < 130; i++) {
        delete g_queue.front();
        g_queue.pop_front(), g_lines.pop_front();
        string moved = std::move(g_lines[i]);
        g_lines.push_front(moved + " was moved to here");
        g_structs.pop_back(), g_rows[i].clear();
        g_rows[i].shrink_to_fit();
    }
    g_list.remove_if([](const string &) { return chance() % 3 == 0; });
    for (int i = 0; i < 60; i++)
        g_list.push_front("an entry in front: " + to_string(i));
}

static void fill_unproven()
{
    for (int i = 0; i < 120; i++) {
        g_doubles[i * 0.37 + 1] = node(i), g_floats[(float) i * 0.37f + 1] = node(i), g_hashed_doubles[i * 0.11] = node(i);
        g_points[{i / 3, i % 3}] = node(i), g_hashed_points[{i / 3, i % 3}] = node(i);
        g_labels[{to_string(i / 3), i % 3}] = node(i), g_hashed_labels[{to_string(i / 3), i % 3}] = node(i);
        g_several.emplace(to_string(i / 3), node(i));
        g_pairs.push_back({new Session("of a pair"), node(i).release()});
    }
}

static void tell_all_unproven()
{
    tell_unproven(g_doubles), tell_unproven(g_floats), tell_unproven(g_points), tell_unproven(g_labels), tell_unproven(g_several);
    tell_unproven(g_hashed_points), tell_unproven(g_hashed_labels), tell_unproven(g_hashed_doubles);
    for (auto &one : g_pairs)
        tell(one.first, "?"), tell(one.second, "?");
}

int main(int, char **words)
{
    chance.seed((unsigned) atoi(words[2]));
    g_other = new Service;
    fill_sequences(), fill_maps(), fill(g_service, 100), fill(*g_other, 100), fill_unproven();
    file = fopen(words[1], "w");
    if (!file)
        return 1;
    tell_variables(), tell_maps(), tell_sequences(), tell_all_unproven();
    tell_service(g_service, "g_service", MEMBER), tell_service(*g_other, "g_other", POINTED);
    if (fclose(file))
        return 1;
    puts("ready");
    fflush(stdout);
    return getchar() == EOF;
}
