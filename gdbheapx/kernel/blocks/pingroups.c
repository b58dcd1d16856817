/* What is known of blocks that keep free memory, and the groups that they make. */
#include "pingroups.h"
#include "marks.h"

#include <stdlib.h>

#define MOST_GROUPS (1u << 18)

void heapx_pins_free(struct pins *pins)
{
    if (!pins)
        return;
    free(pins->place.pins);
    free(pins->tops);
    free(pins->groups);
    free(pins->slots);
    free(pins);
}

/* `overheads`: MOST_KINDS. NULL: no memory. */
struct pins *heapx_pins_new(const struct pin_numbers *shape, const uint64_t *overheads, const uint64_t *rooms, uint64_t room_count,
                            const uint64_t *apart, uint64_t apart_count, const uint64_t *own, uint64_t own_count)
{
    struct pins *pins = calloc(1, sizeof *pins);
    if (!pins)
        return NULL;
    *pins = (struct pins) {.shape = *shape, .rooms = rooms, .room_count = room_count, .apart = apart, .apart_count = apart_count,
                           .own = own, .own_count = own_count};
    memcpy(pins->overheads, overheads, sizeof pins->overheads);
    return pins;
}

/* Rooms that are told one by one. */
void heapx_pins_spans(struct pins *pins, const uint64_t *spans, uint64_t count)
{
    pins->spans = spans;
    pins->span_count = count;
}

/* What is known of used blocks. `graph`: NULL: labels are by their order, the first is number `first`. */
void heapx_pins_label(struct pins *pins, const struct graph *graph, const uint32_t *labels, uint64_t count, uint64_t first)
{
    pins->graph = graph;
    pins->labels = labels;
    pins->label_count = count;
    pins->ordinal = first;
}

/* `owners`, `retained`: by node of the graph. 0: no memory. */
int heapx_pins_own(struct pins *pins, const uint32_t *owners, const uint64_t *retained, uint64_t count, uint64_t least)
{
    pins->tops = malloc((size_t) count * sizeof *owners + 1);
    if (!pins->tops)
        return 0;
    memcpy(pins->tops, owners, (size_t) count * sizeof *owners);
    pins->top_count = count;
    pins->retained = retained;
    pins->least_retained = least;
    return 1;
}

/* ---- what a pin is ---- */

static uint32_t top_of(struct pins *pins, uint32_t node)
{
    uint32_t *tops = pins->tops;
    if (!tops || node >= pins->top_count)
        return BY_SEVERAL;
    while (tops[node] < pins->top_count) {
        const uint32_t above = tops[node];
        if (tops[above] < pins->top_count)
            tops[node] = tops[above];
        node = above;
    }
    if (node >= pins->graph->index.blocks)
        return node;
    if (pins->graph->marks && is_leaked(pins->graph->marks, node))
        return BY_NOBODY;
    return pins->retained[node] >= pins->least_retained ? node : BY_SEVERAL;
}

static int is_own(const struct pins *pins, const struct pin *pin)
{
    uint64_t low = 0, high = pins->own_count;
    while (low < high) {
        const uint64_t middle = low + (high - low) / 2;
        if (pins->own[middle] < pin->address)
            low = middle + 1;
        else
            high = middle;
    }
    return low < pins->own_count && pins->own[low] - pin->address < pin->usable;
}

struct pin_key pin_key_of(struct pins *pins, const struct pin *pin)
{
    struct pin_key key = {0, UNSIGNED, BY_SEVERAL, PIN_USED};
    if (pin->class != CLASS_USED || is_own(pins, pin)) {
        key.status = pin->class == CLASS_CACHED ? PIN_CACHED : PIN_OWN;
    } else if (pins->graph) {
        const uint32_t id = index_begin(&pins->graph->index, pin->address);
        if (id != NO_NODE) {
            key.label = id < pins->label_count ? pins->labels[id] : UNSIGNED;
            key.top = top_of(pins, id);
        }
    } else if (pin->ordinal < pins->label_count) {
        key.label = pins->labels[pin->ordinal];
    }
    if (pins->span_count)
        key.size = pins->place.size;
    else if (pins->room_count || (key.status == PIN_USED && key.label == UNSIGNED))
        key.size = pin->usable;
    return key;
}

/* ---- groups ---- */

static uint64_t mix(uint64_t value)
{
    value = (value ^ value >> 33) * 0xff51afd7ed558ccdull;
    return value ^ value >> 33;
}

static uint64_t hash_of(const struct pin_key *key, unsigned situation, uint32_t arena)
{
    return mix(key->size * 31 + mix((uint64_t) key->label << 32 | key->top) + ((uint64_t) arena << 8 | situation << 4 | key->status));
}

static int grow_slots(struct pins *pins)
{
    const uint64_t count = pins->slot_count ? 2 * pins->slot_count : 1024;
    uint32_t *slots = calloc((size_t) count, sizeof *slots);
    struct pin_sums *groups = realloc(pins->groups, (size_t) (count / 2) * sizeof *groups);
    if (groups)
        pins->groups = groups;
    if (!slots || !groups) {
        free(slots);
        return 0;
    }
    for (uint64_t i = 0; i < pins->group_count; i++) {
        const struct pin_sums *group = &groups[i];
        uint64_t at = hash_of(&group->key, group->situation, group->arena);
        while (slots[at & (count - 1)])
            at++;
        slots[at & (count - 1)] = (uint32_t) i + 1;
    }
    free(pins->slots);
    pins->slots = slots;
    pins->slot_count = count;
    return 1;
}

struct pin_sums *pin_group_at(struct pins *pins, struct pin_key key, unsigned situation, uint32_t arena)
{
    if (2 * pins->group_count >= pins->slot_count && !grow_slots(pins)) {
        pins->no_memory = 1;
        return NULL;
    }
    for (;;) {
        uint64_t at = hash_of(&key, situation, arena);
        for (uint32_t number; (number = pins->slots[at & (pins->slot_count - 1)]); at++) {
            struct pin_sums *group = &pins->groups[number - 1];
            if (pins_alike(&group->key, &key) && group->arena == arena && group->situation == situation)
                return group;
        }
        if (pins->group_count < MOST_GROUPS || (!key.size && key.label == UNSIGNED && key.top == BY_SEVERAL)) {
            struct pin_sums *group = &pins->groups[pins->group_count++];
            memset(group, 0, sizeof *group);
            group->key = key;
            group->situation = (uint8_t) situation;
            group->arena = arena;
            pins->slots[at & (pins->slot_count - 1)] = (uint32_t) pins->group_count;
            return group;
        }
        key.size = 0;       /* more than are told apart: those beyond are one */
        key.label = UNSIGNED;
        key.top = BY_SEVERAL;
    }
}

void pin_count(struct pins *pins, struct pin_sums *group, struct pin *pin)
{
    const uint8_t bit = (uint8_t) (1u << group->situation);
    if (pin->counted & bit)
        return;
    pin->counted |= bit;
    if (pin->begin == pins->last.begin)
        pins->last.counted |= bit;
    group->sample = group->blocks ? group->sample : pin->address;
    group->least = !group->blocks || pin->usable < group->least ? pin->usable : group->least;
    group->most = pin->usable > group->most ? pin->usable : group->most;
    group->blocks++;
    group->bytes += pin->usable;
}

void heapx_pins_groups(const struct pins *pins, struct pin_group *out)
{
    for (uint64_t i = 0; i < pins->group_count; i++) {
        const struct pin_sums *sums = &pins->groups[i];
        out[i] = (struct pin_group) {
            .situation = sums->situation, .status = sums->key.status, .label = sums->key.label, .top = sums->key.top,
            .size = sums->key.size, .arena = sums->arena, .kept_bytes = sums->kept, .alone_bytes = sums->alone, .places = sums->places,
            .blocks = sums->blocks, .block_bytes = sums->bytes, .least_bytes = sums->least, .most_bytes = sums->most,
            .sample = sums->sample,
        };
    }
}
