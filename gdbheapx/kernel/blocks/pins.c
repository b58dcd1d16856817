/* Which used blocks keep free memory from being returned: places (pages, or rooms such as slabs) that have both, each free byte once.

   By pages: of a run of free blocks what lies on whole pages behind its head goes back; the rest shares its pages with others, which
   are the pins. A run that ends in a reserve stays as a whole, and the block below it is the pin. By rooms: a room goes back once all of
   it is free. A place belongs to the kind of block that has most of it, so that its bytes count once. */
#include "marks.h"

#include <stdlib.h>

/* What makes blocks alike. */
struct pin_key {
    uint64_t size;                  /* where nothing else is known of them, and of rooms */
    uint32_t label, top;
    uint8_t status;
};

struct pin {
    uint64_t begin, end;            /* of the allocator's unit */
    uint64_t address, usable, ordinal;
    struct pin_key key;             /* looked up once its place has free bytes */
    uint8_t class, counted;         /* counted: one bit a situation in which it is in its group already */
};

struct pin_sums {
    struct pin_key key;
    uint32_t arena;
    uint8_t situation;
    uint64_t kept, alone, places, blocks, bytes, least, most, sample;
};

struct place {
    uint64_t begin, end, size;      /* size: of a room's regions */
    uint64_t bytes[SITUATIONS];
    uint64_t count, room;
    struct pin *pins;
    uint32_t arena;
    int after_last;                 /* free memory of it begins where `last` ends */
};

struct free_run {
    uint64_t begin, end, listed;    /* begin 0: none */
    uint32_t arena;
};

struct pins {
    struct pin_numbers shape;
    uint64_t overheads[MOST_KINDS];     /* by kind, modulo 2**64 */
    const uint64_t *rooms;          /* size of regions, bytes of a room: sorted; all arrays but `tops` are the caller's */
    uint64_t room_count;
    const uint64_t *spans;          /* begin, end, size of regions: of each room, sorted, where sizes do not tell rooms */
    uint64_t span_count, span;      /* span: the first that does not end before the row at hand */
    const uint64_t *own;
    uint64_t own_count;
    const struct graph *graph;      /* NULL: labels are by the order of used blocks */
    const uint32_t *labels;
    uint64_t label_count;
    const uint64_t *apart;          /* arenas of which all that is kept is one situation, sorted */
    uint64_t apart_count;
    uint32_t *tops;                 /* a copy of each node's owner, shortened on the way; NULL: not known */
    uint64_t top_count;
    const uint64_t *retained;       /* by node: bytes that it keeps alive */
    uint64_t least_retained;        /* a block that several own and that keeps so much is told as an owner itself */
    uint64_t ordinal;
    struct place place;
    struct free_run run;
    struct pin last;                /* the unit in use before; end 0: none */
    uint64_t returned;
    struct pin_sums *groups;
    uint32_t *slots;                /* by hash: group + 1 */
    uint64_t group_count, slot_count;
    int no_memory;
};

#define MOST_GROUPS (1u << 18)
#define MOST_ON_PLACE 64u           /* sorts of blocks of one place that are told apart */
#define MOST_BYTES (1ull << 62)     /* no address and no size is larger, whatever the target says */

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
    const uint64_t place = rows_up_to(pins->own, pins->own_count, sizeof *pins->own, pin->address - 1);
    return place < pins->own_count && pins->own[place] - pin->address < pin->usable;
}

static struct pin_key pin_key_of(struct pins *pins, const struct pin *pin)
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

static int pins_alike(const struct pin_key *one, const struct pin_key *other)
{
    return one->size == other->size && one->label == other->label && one->top == other->top && one->status == other->status;
}

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

/* NULL: no memory. */
static struct pin_sums *pin_group_at(struct pins *pins, struct pin_key key, unsigned situation, uint32_t arena)
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

/* The block is one of the group, once. */
static void pin_count(struct pins *pins, struct pin_sums *group, struct pin *pin)
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

/* ---- places ---- */

struct on_place {
    struct pin_key key;
    uint64_t bytes;
};

/* How much of the place the block has. */
static uint64_t share_of(const struct place *place, const struct pin *pin)
{
    const uint64_t begin = pin->begin > place->begin ? pin->begin : place->begin, end = pin->end < place->end ? pin->end : place->end;
    return begin < end ? end - begin : 0;
}

/* The sort of blocks that has most of the place: used ones first. `count`: how many sorts there are. */
static struct pin_key first_of(struct pins *pins, unsigned *count)
{
    struct on_place found[MOST_ON_PLACE];
    const struct place *place = &pins->place;
    unsigned best = 0;
    *count = 0;
    for (uint64_t i = 0; i < place->count; i++) {
        const struct pin_key key = place->pins[i].key = pin_key_of(pins, &place->pins[i]);
        unsigned at = 0;
        while (at < *count && !pins_alike(&found[at].key, &key))
            at++;
        if (at == MOST_ON_PLACE)
            continue;
        if (at == *count) {
            found[at].key = key;
            found[at].bytes = 0;
            ++*count;
        }
        found[at].bytes += share_of(place, &place->pins[i]);
    }
    for (unsigned at = 1; at < *count; at++)
        if (found[at].key.status < found[best].key.status
            || (found[at].key.status == found[best].key.status && found[at].bytes > found[best].bytes))
            best = at;
    return found[best].key;
}

static int add_pin(struct place *place, const struct pin *pin)
{
    if (!has_room(&place->pins, place->count, &place->room, sizeof *pin))
        return 0;
    place->pins[place->count++] = *pin;
    return 1;
}

/* Its free bytes go to groups. */
static void close_place(struct pins *pins)
{
    struct place *place = &pins->place;
    uint64_t whole = 0;
    for (unsigned i = 0; i < SITUATIONS; i++)
        whole += place->bytes[i];
    if (whole) {
        struct pin_key key = {0, UNSIGNED, BY_SEVERAL, PIN_NONE};
        unsigned sorts = 0;
        if (!place->count && place->after_last && !add_pin(place, &pins->last))
            pins->no_memory = 1;
        if (place->count)
            key = first_of(pins, &sorts);
        else if (pins->room_count || pins->span_count)
            key.size = place->size;
        for (unsigned situation = 0; situation < SITUATIONS; situation++) {
            struct pin_sums *group = place->bytes[situation] ? pin_group_at(pins, key, situation, place->arena) : NULL;
            if (!group)
                continue;
            group->kept += place->bytes[situation];
            group->alone += sorts == 1 ? place->bytes[situation] : 0;
            group->places++;
            for (uint64_t i = 0; i < place->count; i++)
                if (pins_alike(&place->pins[i].key, &key))
                    pin_count(pins, group, &place->pins[i]);
        }
    }
    memset(place->bytes, 0, sizeof place->bytes);
    place->begin = place->end = place->size = place->count = 0;
    place->after_last = 0;
}

static void open_place(struct pins *pins, uint64_t begin, uint64_t bytes)
{
    if (pins->place.end && pins->place.begin == begin)
        return;
    close_place(pins);
    pins->place.begin = begin;
    pins->place.end = begin + bytes;
}

/* ---- by pages ---- */

/* APART for all of some arenas but their ends. */
static unsigned situation_in(const struct pins *pins, uint32_t arena, unsigned situation)
{
    for (uint64_t i = 0; i < pins->apart_count && pins->apart[i] <= arena; i++)
        if (pins->apart[i] == arena)
            return APART;
    return situation;
}

static void keep_range(struct pins *pins, uint64_t begin, uint64_t end, unsigned as)
{
    const uint64_t page = pins->shape.page_bytes;
    const unsigned situation = situation_in(pins, pins->run.arena, as);
    while (begin < end) {
        const uint64_t here = begin & ~(page - 1), until = end - here > page ? here + page : end;
        open_place(pins, here, page);
        pins->place.bytes[situation] += until - begin;
        pins->place.arena = pins->run.arena;
        pins->place.after_last |= !pins->place.count && pins->last.end == pins->run.begin;
        begin = until;
    }
}

static void close_run(struct pins *pins)
{
    const uint64_t begin = pins->run.begin, end = pins->run.end, mask = pins->shape.page_bytes - 1;
    if (!begin)
        return;
    const uint64_t first = (begin + pins->shape.head_bytes + mask) & ~mask, last = end & ~mask;
    if (first < last) {
        pins->returned += last - first;
        keep_range(pins, begin, first, EDGE);
        keep_range(pins, last, end, EDGE);
    } else {
        keep_range(pins, begin, end, pins->run.listed == end - begin ? LISTED : HOLE);
    }
    pins->run.begin = 0;
}

/* The run ends in a reserve: all of it stays. */
static void keep_reserve(struct pins *pins)
{
    struct pin_key key = {0, UNSIGNED, BY_SEVERAL, PIN_NONE};
    const int has_pin = pins->last.end == pins->run.begin && pins->last.end;
    if (has_pin)
        key = pin_key_of(pins, &pins->last);
    struct pin_sums *group = pin_group_at(pins, key, RESERVE, pins->run.arena);
    if (group) {
        const uint64_t bytes = pins->run.end - pins->run.begin;
        group->kept += bytes;
        group->alone += has_pin ? bytes : 0;
        group->places++;
        if (has_pin) {
            struct place *place = &pins->place;
            pin_count(pins, group, &pins->last);
            if (place->count && place->pins[place->count - 1].begin == pins->last.begin)
                place->pins[place->count - 1].counted = pins->last.counted;
        }
    }
    pins->run.begin = 0;
}

static void take_free(struct pins *pins, uint64_t begin, uint64_t end, int is_listed, uint32_t arena)
{
    if (!pins->run.begin) {
        pins->run.begin = begin;
        pins->run.listed = 0;
        pins->run.arena = arena;
    }
    pins->run.end = end;
    pins->run.listed += is_listed ? end - begin : 0;
}

static void take_used(struct pins *pins, const struct pin *pin)
{
    const uint64_t page = pins->shape.page_bytes, first = pin->begin & ~(page - 1), last = (pin->end - 1) & ~(page - 1);
    open_place(pins, first, page);
    pins->last = *pin;
    pins->no_memory |= !add_pin(&pins->place, &pins->last);
    if (last != first) {
        open_place(pins, last, page);
        pins->no_memory |= !add_pin(&pins->place, &pins->last);
    }
}

static void page_row(struct pins *pins, const struct block_rows *rows, uint64_t i)
{
    const unsigned class = rows->classes[i], kind = rows->kinds[i];
    const uint64_t begin = rows->addresses[i] - pins->shape.lead_bytes;
    const uint64_t size = rows->usable[i] + (kind < MOST_KINDS ? pins->overheads[kind] : 0), end = begin + size;
    const int is_listed = class == CLASS_CACHED && kind < 64 && (pins->shape.kinds >> kind & 1);
    if (pins->run.begin && pins->run.end != begin)
        close_run(pins);
    if (begin - 1 >= MOST_BYTES || size - 1 >= MOST_BYTES)
        return;
    if (class == CLASS_FREE || class == CLASS_RESERVE || is_listed) {
        take_free(pins, begin, end, is_listed, rows->arenas[i]);
        if (class == CLASS_RESERVE)
            keep_reserve(pins);
        return;
    }
    close_run(pins);
    if (class != CLASS_RETURNED) {
        const struct pin pin = {begin, end, rows->addresses[i], rows->usable[i], pins->ordinal, {0, 0, 0, 0}, (uint8_t) class, 0};
        take_used(pins, &pin);
    }
}

/* A block in the room that is open. */
static void room_add(struct pins *pins, unsigned class, uint64_t address, uint64_t size)
{
    if (class == CLASS_FREE) {
        pins->place.bytes[ROOM] += size;
    } else {
        const struct pin pin = {address, address + size, address, size, pins->ordinal, {0, 0, 0, 0}, (uint8_t) class, 0};
        pins->no_memory |= !add_pin(&pins->place, &pin);
    }
}

/* ---- by rooms ---- */

static uint64_t room_bytes(const struct pins *pins, uint64_t size)
{
    const uint64_t place = rows_up_to(pins->rooms, pins->room_count, 2 * sizeof *pins->rooms, size - 1);
    return place < pins->room_count && pins->rooms[2 * place] == size ? pins->rooms[2 * place + 1] : 0;
}

static void room_row(struct pins *pins, const struct block_rows *rows, uint64_t i)
{
    struct place *place = &pins->place;
    const unsigned class = rows->classes[i], kind = rows->kinds[i];
    const uint64_t address = rows->addresses[i], size = rows->usable[i] + (kind < MOST_KINDS ? pins->overheads[kind] : 0);
    const int is_none = kind < 64 && (pins->shape.kinds >> kind & 1);   /* of a room, though it may be as large as a block */
    if ((class != CLASS_USED && class != CLASS_CACHED && class != CLASS_FREE) || address >= MOST_BYTES || is_none)
        return;
    const uint64_t bytes = room_bytes(pins, size);
    if (!bytes)
        return;
    if (address - place->begin >= place->end - place->begin || size != place->size || (address - place->begin) % size) {
        close_place(pins);
        place->begin = address;
        place->end = address + bytes;
        place->size = size;
        place->arena = rows->arenas[i];
    }
    room_add(pins, class, address, size);
}

/* Rooms that are told one by one, whose blocks may lie anywhere in their regions. */
static void span_row(struct pins *pins, const struct block_rows *rows, uint64_t i)
{
    struct place *place = &pins->place;
    const unsigned class = rows->classes[i];
    const uint64_t address = rows->addresses[i], size = rows->usable[i];
    while (pins->span < pins->span_count && pins->spans[3 * pins->span + 1] <= address)
        pins->span++;
    const uint64_t *span = &pins->spans[3 * pins->span];
    if ((class != CLASS_USED && class != CLASS_CACHED && class != CLASS_FREE) || pins->span == pins->span_count || address < span[0])
        return;
    if (place->begin != span[0]) {
        close_place(pins);
        place->begin = span[0];
        place->end = span[1];
        place->size = span[2];
        place->arena = rows->arenas[i];
    }
    room_add(pins, class, address, size);
}

/* ---- the stream ---- */

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
/* Takes blocks of a stream for at most about `seconds`. 1: there is more; 0: it has ended; NO_MEMORY. */
int64_t heapx_pins_slice(struct pins *pins, struct block_source *blocks, double seconds)
{
    struct row_buffer buffer;
    const double deadline = clock_now() + seconds;
    do {
        rows_open(&buffer);
        const int failed = blocks->next(blocks, deadline - clock_now(), &buffer.rows);
        for (uint64_t i = 0; i < buffer.rows.count; i++) {
            (pins->span_count ? span_row : pins->room_count ? room_row : page_row)(pins, &buffer.rows, i);
            pins->ordinal += buffer.classes[i] == CLASS_USED;
        }
        if (failed || pins->no_memory)
            return NO_MEMORY;
        if (blocks->state(blocks).ended)
            return 0;
    } while (clock_now() < deadline);
    return 1;
}

/* No more comes. Returns how many groups there are; `returned`: bytes that go back; `used`: blocks met; NO_MEMORY. */
int64_t heapx_pins_end(struct pins *pins, uint64_t *returned, uint64_t *used)
{
    close_run(pins);
    close_place(pins);
    *returned = pins->returned;
    *used = pins->ordinal;
    return pins->no_memory ? NO_MEMORY : (int64_t) pins->group_count;
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
