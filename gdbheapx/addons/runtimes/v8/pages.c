/* Loops over the words of one page of V8's heap. Tables: {key, value} in each slot, a power of two of them, key 0 where there is none.
   The value of a map: words of its objects in the low SIZE_BITS, and above them the number of a rule, from 1 on, where they differ. */
#include "gdbheapx_v8.h"

#define HASH 0x9e3779b97f4a7c15ull
#define PAIR 2u

static uint64_t find_value(const uint64_t *table, uint64_t slots, uint64_t key, uint64_t absent)
{
    uint64_t slot = key * HASH >> 40 & (slots - 1);

    if (!key)
        return absent;
    for (uint64_t tried = 0; tried < slots; tried++, slot = (slot + 1) & (slots - 1)) {
        if (table[PAIR * slot] == key)
            return table[PAIR * slot + 1];
        if (!table[PAIR * slot])
            break;
    }
    return absent;
}

static uint64_t size_of(const uint64_t *words, uint64_t count, uint64_t at, uint64_t value, const uint64_t *maps, uint64_t slots,
    const struct size_rule *rules)
{
    uint64_t size = value & ((1u << SIZE_BITS) - 1), number = value >> SIZE_BITS, second, end;
    const struct size_rule *rule = rules + number - 1;

    if (size || !number || at + 1 >= count)
        return size;
    if (!rule->unit_bytes) {                            /* up to the next object */
        for (end = at + 2; end < count && end - at < MOST_OBJECT_WORDS; end++)
            if (find_value(maps, slots, words[end], UINT64_MAX) != UINT64_MAX)
                return end - at;
        return 0;
    }
    second = words[at + 1];
    if (rule->is_small_integer && (second & 0xffffffff))
        return 0;
    return (rule->head_bytes + (second >> rule->shift & rule->mask) * rule->unit_bytes + 7) / 8;
}

/* Words of the object that begins there; 0: no rule for it is known, or it is none. */
uint64_t heapx_v8_measure(const uint64_t *words, uint64_t count, uint64_t at, const uint64_t *maps, uint64_t slots,
    const struct size_rule *rules)
{
    uint64_t value = at < count ? find_value(maps, slots, words[at], UINT64_MAX) : UINT64_MAX;

    return value == UINT64_MAX ? 0 : size_of(words, count, at, value, maps, slots, rules);
}

/* Walks on. Returns 1 where the caller is to look: at an object that may have been moved, or one without a rule; 0 at the end. */
int heapx_v8_walk(const uint64_t *words, uint64_t count, struct page_walk *walk, const uint64_t *maps, uint64_t slots,
    const struct size_rule *rules, uint64_t free_rule, uint32_t *objects)
{
    while (walk->at < count) {
        uint64_t at = walk->at, word = words[at], value = find_value(maps, slots, word, UINT64_MAX), size, next;
        int leads;

        if (value == UINT64_MAX) {
            if (!(word & 7) && word >> 16 && !(word >> 47) && (word & 0xffffffff))
                return 1;
            word ? walk->other_words++ : walk->free_words++;
            walk->at++;
            walk->is_led = 0;
            continue;
        }
        size = size_of(words, count, at, value, maps, slots, rules);
        if (!size && walk->asks_for_rules && !(value >> SIZE_BITS))
            return 1;
        next = at + size;
        leads = size && next < count && size < count && find_value(maps, slots, words[next], UINT64_MAX) != UINT64_MAX;
        if (!size || size > count - at || !(walk->is_led || leads || next == count || !words[next])) {
            walk->other_words++;
            walk->at++;
            walk->is_led = 0;
            continue;
        }
        objects[walk->objects++] = (uint32_t)at;
        if (value >> SIZE_BITS == free_rule)
            walk->free_words += size;
        else
            walk->proven_words += size;
        walk->is_led = next < count && words[next];     /* a moved object may follow */
        walk->at = next;
    }
    return 0;
}

/* Places of words that are keys of a set. */
uint64_t heapx_v8_members(const uint64_t *words, uint64_t count, const uint64_t *set, uint64_t slots, uint32_t *places)
{
    uint64_t found = 0;

    for (uint64_t at = 0; at < count; at++)
        if ((words[at] & 3) == 1 && find_value(set, slots, words[at], 0))
            places[found++] = (uint32_t)at;
    return found;
}

/* Places of aligned words between two addresses that are no small integers. */
uint64_t heapx_v8_pointers(const uint64_t *words, uint64_t count, uint64_t low, uint64_t high, uint32_t *places)
{
    uint64_t found = 0;

    for (uint64_t at = 0; at < count; at++)
        if (words[at] >= low && words[at] < high && !(words[at] & 7) && (words[at] & 0xffffffff))
            places[found++] = (uint32_t)at;
    return found;
}
