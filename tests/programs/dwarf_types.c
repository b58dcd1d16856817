#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#define MACRO(x) ((x) + 1)
typedef struct inner_s inner_t;
typedef char letters_t;
enum colour_e { colour_red = -3, colour_green, colour_blue = 70000 };
enum { plain_enumerator = 5 };
struct inner_s { _Atomic(uint64_t) count; struct { uint32_t repr; } wrapped; };
struct other_s;
union either_u { uint16_t half; double whole; };
typedef struct { size_t only_by_typedef; } tagless_t;
struct outer_s {
    unsigned bits : 3, more_bits : 20;
    const char *volatile text;
    const letters_t *renamed_text;
    unsigned char *no_text;
    struct other_s *opaque;
    int (*function)(struct outer_s *);
    inner_t nested[2][3];
    struct inner_s *pointer;
    union { uint8_t first; int64_t second; };
    struct { int unnamed; } named;
    enum colour_e colour;
    union either_u either;
    tagless_t tagless;
    bool yes;
    signed char small;
    float real;
    char buffer[sizeof(void *) * 4];
    struct outer_s *next;
    uint32_t flexible[];
};
const bool config_thing = true;
static const long config_static = -7;
struct outer_s *je_variable;
static struct inner_s table[MACRO(6)];
