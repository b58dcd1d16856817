#include <string>
#include <unordered_map>
namespace gate {
struct Resolver { static std::unordered_map<long, std::string> cache_; };
std::unordered_map<long, std::string> Resolver::cache_;
struct Shape { virtual ~Shape() {} long sides[5]; };
Shape *shapes[2000];
}
extern "C" void fill()
{
    for (long i = 0; i < 5000; i++)
        gate::Resolver::cache_[i] = std::string(40, 'x');
    for (auto &one : gate::shapes)
        one = new gate::Shape;
}
