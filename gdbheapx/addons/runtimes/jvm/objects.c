/* Objects of HotSpot's Java heap: a walk over the parts that are in use, marks from roots, and the words of objects that lead into other
   memory. Sizes: oops/klass.hpp (layout_helper), instanceMirrorKlass.hpp, instanceStackChunkKlass.inline.hpp.

   A bit of each alignment unit tells where an object begins, three more are marks; these words lie together, for one line of memory
   answers for a reference. Whoever cannot be pushed any more is marked all the same, and found again in the bits. */
#include "gdbheapx_jvm.h"

#include "common/heapx.h"

#include <stdlib.h>

#define PLANES (1u + MARK_COUNT)    /* words of a cell: starts, then each mark */
#define GRANULE_SHIFT 16u           /* of memory that is read where it lies */
#define GRANULE (1ull << GRANULE_SHIFT)
#define WINDOW_BYTES (256u << 10)
#define PROBE_BYTES (64u << 10)
#define AT_ONCE 256u                /* references that are read at once */
#define PIECE (8 * AT_ONCE)
#define SLOTS_AT_ONCE 1024u         /* of a long object, before others have their turn */
#define IN_A_ROW 4u                 /* objects that end a gap */
#define NEAR 16u                    /* objects whose memory is on its way */
#define EDGES 32u
#define INDEX_BITS 42u
#define LEAST_ROOM (1u << 16)
#define STEPS 4096u
#define UNKNOWN UINT64_MAX          /* an offset; no parent */
#define HAS_BITMAP 16u              /* stackChunkOopDesc::FLAG_HAS_BITMAP */
#define TYPE_LONG 11u

enum { INSTANCE, PRIMITIVES, LONGS, OBJECTS };

struct known_class {
    uint64_t bytes;                 /* of an instance; before the elements of an array */
    uint64_t number_at;             /* where an object has the number that its size depends on */
    uint32_t first_block, block_count;
    uint8_t kind, form, element_shift;
};

struct keyed {
    uint64_t key, index;
};

struct object {
    const struct known_class *class;
    uint64_t bytes, number;
};

struct edge {
    uint64_t index, parent;
};

struct java_objects {
    const struct source *source;
    struct object_layout layout;
    unsigned swap, oop, unit_shift, class_end, hash_shift;
    struct known_class *classes;
    uint64_t class_count, *blocks;      /* begin and end of each run of references */
    struct keyed *table;
    uint64_t *parts, part_count;        /* begin and end of each, sorted */
    uint64_t low, span;
    uint64_t *cells, *objects, *bytes, *set_objects, *set_bytes;
    const uint8_t **direct;
    size_t cell_bytes, direct_bytes;
    struct window window, probe;
    struct pages pages;
    struct blanks blanks;
    uint64_t part, at, gap_begin, object_count, unparsed_bytes, gap_count;  /* the walk, and the border */
    int is_in_gap;
    uint64_t *deque, room, begin, count, near[NEAR], near_begin, near_count;   /* marking */
    struct edge edges[EDGES];
    unsigned edge_begin, edge_count;
    uint64_t scan_part, scan_index, plane, skipped_kinds[PLANES];
    uint64_t parents_plane;
    int is_full, is_scanning, is_mapped, is_broad;
    uint8_t *reached;
    uint32_t *ranks, *parents;
    const uint64_t *ranges;             /* the border */
    uint64_t range_count, offset;
};

static const uint8_t not_direct;

/* ---- reading ---- */

/* So many bytes, at most PIECE, where they lie or in `to`; NULL: unreadable, or interrupted. */
static const uint8_t *bytes_at(struct java_objects *job, uint64_t address, uint64_t size, uint8_t *to)
{
    const uint64_t offset = address - job->low, within = offset & (GRANULE - 1);
    if (offset < job->span && within + size <= GRANULE) {
        const uint8_t *at = job->direct[offset >> GRANULE_SHIFT];
        if (!at) {
            at = source_at(job->source, address - within, GRANULE);
            job->direct[offset >> GRANULE_SHIFT] = at = at ? at : &not_direct;
        }
        if (at != &not_direct)
            return at + within;
    }
    const uint8_t *at = source_at(job->source, address, size);
    return at ? at : pages_read(&job->pages, address, to, size) ? to : NULL;
}

static inline const uint8_t *look(struct java_objects *job, struct window *window, uint64_t address, uint64_t size, uint8_t *to)
{
    return window ? window_at(window, address, size) : bytes_at(job, address, size, to);
}

static int is_interrupted(struct java_objects *job)
{
    return job->window.interrupted || job->probe.interrupted || job->pages.interrupted;
}

static void resume(struct java_objects *job)
{
    job->window.interrupted = job->probe.interrupted = job->pages.interrupted = 0;
}

/* ---- objects ---- */

static uint64_t class_key(struct java_objects *job, const uint8_t *head)
{
    uint8_t to[8];
    if (job->layout.class_bytes)
        return load_word(head + job->layout.class_offset, (unsigned) job->layout.class_bytes, job->swap);
    uint64_t mark = load_word(head, 8, job->swap);
    if ((mark & 3) == 3) {      /* it was moved in this pause: its copy has the class */
        head = bytes_at(job, mark & ~7ull, 8, to);
        mark = head ? load_word(head, 8, job->swap) : 0;
    }
    return mark >> job->layout.mark_class_shift;
}

static const struct known_class *find_class(const struct java_objects *job, uint64_t key)
{
    const uint64_t mask = (UINT64_MAX >> job->hash_shift);
    for (uint64_t at = key * 0x9E3779B97F4A7C15u >> job->hash_shift; job->table[at].key; at = (at + 1) & mask)
        if (job->table[at].key == key)
            return &job->classes[job->table[at].index];
    return NULL;
}

/* 0: no object can be here. `window`: NULL for reads all over the heap. */
static int object_at(struct java_objects *job, struct window *window, uint64_t address, uint64_t room, struct object *object)
{
    const uint64_t unit = job->layout.alignment_bytes, slots = 8 / job->oop;
    uint8_t to[16];
    const uint8_t *head = room >= job->class_end ? look(job, window, address, job->class_end, to) : NULL;
    const struct known_class *class = head ? find_class(job, class_key(job, head)) : NULL;
    if (!class)
        return 0;
    uint64_t bytes = class->bytes, number = 0;
    if (class->number_at != UNKNOWN) {
        const uint8_t *at = class->number_at + 4 <= room ? look(job, window, address + class->number_at, 4, to) : NULL;
        number = at ? load_word(at, 4, job->swap) : UINT32_MAX;
        if (number > INT32_MAX)
            return 0;
        if (class->form != INSTANCE)
            bytes += number << class->element_shift;
        else if (class->kind == STACK_CHUNK)
            bytes += 8 * number + (number * slots + 63) / 64 * 8;
        else
            bytes = 8 * number >= bytes ? 8 * number : UNKNOWN / 2;
    }
    bytes = (bytes + unit - 1) & ~(unit - 1);
    *object = (struct object) {class, bytes, number};
    return bytes <= room;
}

/* The first bit of a plane from `index` on, below `end`; or `end`. */
static uint64_t next_bit(const struct java_objects *job, unsigned plane, uint64_t index, uint64_t end)
{
    while (index < end) {
        const uint64_t word = job->cells[PLANES * (index >> 6) + plane] >> (index & 63);
        if (word) {
            index += (unsigned) __builtin_ctzll(word);
            return index < end ? index : end;
        }
        index = (index | 63) + 1;
    }
    return end;
}

static uint64_t index_of(const struct java_objects *job, uint64_t address)
{
    return (address - job->low) >> job->unit_shift;
}

static uint64_t address_of(const struct java_objects *job, uint64_t index)
{
    return job->low + (index << job->unit_shift);
}

static int has_start(const struct java_objects *job, uint64_t address)
{
    const uint64_t offset = address - job->low, index = offset >> job->unit_shift;
    return offset < job->span && !(offset & (job->layout.alignment_bytes - 1)) && job->cells[PLANES * (index >> 6)] >> (index & 63) & 1;
}

/* ---- what there is ---- */

static int is_usable(const struct java_objects *job, const struct object_class *given, struct known_class *class)
{
    const struct object_layout *layout = &job->layout;
    const int32_t helper = (int32_t) (uint32_t) given->layout_helper;
    *class = (struct known_class) {.kind = (uint8_t) given->kind, .number_at = UNKNOWN, .first_block = (uint32_t) given->first_block};
    if (helper < 0) {
        class->form = helper >> 30 == -2 ? OBJECTS : (helper >> 8 & 255) == TYPE_LONG ? LONGS : PRIMITIVES;
        class->bytes = (unsigned) helper >> 16 & 255;
        class->number_at = layout->array_length_offset;
        class->element_shift = (uint8_t) (helper & 63);
        return class->element_shift <= 3 && class->bytes >= layout->array_length_offset + 4
            && (class->form != OBJECTS || 1u << class->element_shift == job->oop);
    }
    class->bytes = (uint64_t) helper & ~7ull;
    class->block_count = (uint32_t) given->block_count;
    if (class->kind == MIRROR || class->kind == STACK_CHUNK) {
        class->number_at = class->kind == MIRROR ? layout->mirror_size_offset : layout->chunk_size_offset;
        if (class->number_at > class->bytes)
            return 0;
    }
    return class->bytes >= job->class_end;
}

static int take_classes(struct java_objects *job, const struct object_class *classes, const uint64_t *blocks, uint64_t block_count)
{
    unsigned bits = 4;
    while (1ull << bits < 2 * job->class_count)
        bits++;
    job->hash_shift = 64 - bits;
    job->table = calloc((size_t) 1 << bits, sizeof *job->table);
    job->classes = calloc((size_t) job->class_count + 1, sizeof *job->classes);
    job->blocks = calloc((size_t) block_count + 1, 2 * sizeof *job->blocks);
    if (!job->table || !job->classes || !job->blocks)
        return 0;
    for (uint64_t i = 0; i < job->class_count; i++) {
        struct known_class *class = &job->classes[i];
        const uint64_t key = classes[i].key;
        if (!key || !is_usable(job, &classes[i], class) || find_class(job, key))
            continue;
        uint64_t at = key * 0x9E3779B97F4A7C15u >> job->hash_shift, kept = class->first_block;
        while (job->table[at].key)
            at = (at + 1) & (UINT64_MAX >> job->hash_shift);
        job->table[at] = (struct keyed) {key, i};
        for (uint64_t block = kept, end = kept + class->block_count; block < end && block < block_count; block++) {
            const uint64_t begin = blocks[2 * block], count = blocks[2 * block + 1];
            const uint64_t least = kept > class->first_block ? job->blocks[2 * kept - 1] : job->class_end;
            if (begin >= least && begin <= class->bytes && count <= (class->bytes - begin) / job->oop) {
                job->blocks[2 * kept] = begin;
                job->blocks[2 * kept++ + 1] = begin + count * job->oop;
            }
        }
        class->block_count = (uint32_t) (kept - class->first_block);
    }
    return 1;
}

void heapx_java_free(struct java_objects *job)
{
    if (!job)
        return;
    lazy_free(job->cells, job->cell_bytes);
    lazy_free((void *) job->direct, job->direct_bytes);
    lazy_free(job->deque, (size_t) job->room * sizeof *job->deque);
    lazy_free(job->ranks, job->cell_bytes / PLANES / 2);
    lazy_free(job->parents, ((size_t) job->object_count + 1) * sizeof *job->parents);
    pages_close(&job->pages);
    free(job->window.bytes);
    free(job->probe.bytes);
    free(job->table);
    free(job->classes);
    free(job->blocks);
    free(job->parts);
    free(job->objects);
    free(job->set_objects);
    free(job->reached);
    free(job);
}

/* `blocks`: offset and number of references. `parts`: sorted, without overlap, of whole alignment units, within 2^SPAN_BITS bytes. */
struct java_objects *heapx_java_new(const struct source *source, const struct object_layout *layout, const struct object_class *classes,
                                    uint64_t class_count, const uint64_t *blocks, uint64_t block_count, const uint64_t *parts,
                                    uint64_t part_count)
{
    struct java_objects *job = calloc(1, sizeof *job);
    uint64_t used = 0, room = LEAST_ROOM;
    if (!job)
        return NULL;
    job->source = source;
    job->layout = *layout;
    job->swap = is_swapped(layout->little_endian);
    job->oop = layout->oop_bytes == 4 ? 4 : 8;
    job->unit_shift = (unsigned) __builtin_ctzll(layout->alignment_bytes);
    job->class_end = layout->class_bytes ? (unsigned) (layout->class_offset + layout->class_bytes) : 8;
    job->class_count = class_count;
    job->part_count = part_count;
    job->low = part_count ? parts[0] & ~(GRANULE - 1) : 0;
    job->span = part_count ? parts[2 * part_count - 1] - job->low : 0;
    for (uint64_t i = 0; i < part_count; i++)
        used += parts[2 * i + 1] - parts[2 * i];
    while (room < used / 512)
        room *= 2;
    job->room = room;
    job->is_broad = job->span / 2 > used;
    job->cell_bytes = (size_t) ((index_of(job, job->low + job->span) >> 6) + 1) * PLANES * 8;
    job->direct_bytes = (size_t) ((job->span >> GRANULE_SHIFT) + 1) * sizeof *job->direct;
    job->cells = job->is_broad ? lazy_alloc(job->cell_bytes) : dense_alloc(job->cell_bytes);    /* huge pages where few are left empty */
    job->direct = lazy_alloc(job->direct_bytes);
    job->deque = lazy_alloc((size_t) job->room * sizeof *job->deque);
    job->parts = malloc((size_t) (part_count + 1) * 2 * sizeof *parts);
    job->objects = calloc((size_t) class_count + 1, 2 * sizeof *job->objects);
    job->set_objects = calloc((size_t) (class_count + 1) * MARK_SETS, 2 * sizeof *job->set_objects);
    job->reached = calloc((size_t) class_count + 1, PLANES);
    uint8_t *bytes = malloc(WINDOW_BYTES), *more = malloc(PROBE_BYTES);
    window_open(&job->window, source, bytes, WINDOW_BYTES, 0, 0);
    window_open(&job->probe, source, more, PROBE_BYTES, 0, 0);
    pages_open(&job->pages, source, 0);
    if (!job->cells || !job->direct || !job->deque || !job->parts || !job->objects || !job->set_objects || !job->reached || !bytes
        || !more || !take_classes(job, classes, blocks, block_count)) {
        heapx_java_free(job);
        return NULL;
    }
    job->bytes = job->objects + class_count + 1;
    job->set_bytes = job->set_objects + (class_count + 1) * MARK_SETS;
    if (part_count)
        memcpy(job->parts, parts, part_count * 2 * sizeof *parts);
    job->at = part_count ? parts[0] : 0;
    return job;
}

/* ---- the walk ---- */

static void close_gap(struct java_objects *job, uint64_t end)
{
    if (!job->is_in_gap)
        return;
    job->gap_count++;
    job->unparsed_bytes += end - job->gap_begin;
    job->is_in_gap = 0;
}

/* The walk is at the end of a part: 1, and it stands at the next. */
static int is_at_end(struct java_objects *job)
{
    const uint64_t begin = job->parts[2 * job->part], end = job->parts[2 * job->part + 1];
    job->window.low = job->probe.low = begin;
    job->window.high = job->probe.high = end;
    if (job->at < end)
        return 0;
    close_gap(job, end);
    if (++job->part < job->part_count)
        job->at = job->parts[2 * job->part];
    return 1;
}

static int begins_row(struct java_objects *job, uint64_t address, uint64_t end)
{
    struct object object;
    for (unsigned i = 0; i < IN_A_ROW; i++, address += object.bytes) {
        if (address == end)
            return i > 0;
        if (!object_at(job, &job->probe, address, end - address, &object))
            return 0;
    }
    return 1;
}

/* Within a gap: 1: an object begins here; 0: not here, and the walk has gone on; INTERRUPTED. */
static int leave_gap(struct java_objects *job, uint64_t end)
{
    const uint64_t unit = job->layout.alignment_bytes;
    if (!(job->at & (GRANULE - 1)) || job->at == job->gap_begin) {
        const uint64_t next = source_skip(job->source, &job->blanks, job->at, end);
        job->at = (next + unit - 1) & ~(unit - 1);
    }
    const int is_readable = end - job->at < job->class_end || window_at(&job->window, job->at, job->class_end);
    if (is_readable && begins_row(job, job->at, end))
        return 1;
    if (is_interrupted(job))
        return INTERRUPTED;
    job->at = is_readable ? job->at + unit : (job->at | 4095) + 1;
    return 0;
}

/* 1: there is more to do; 0; INTERRUPTED. */
int64_t heapx_java_walk(struct java_objects *job, double seconds)
{
    const double deadline = clock_now() + seconds;
    struct object object;
    resume(job);
    for (unsigned steps = 1; job->part < job->part_count; steps++) {
        const uint64_t end = job->parts[2 * job->part + 1];
        if (steps % STEPS == 0 && clock_now() > deadline)
            return 1;
        if (is_at_end(job))
            continue;
        if (job->is_in_gap) {
            const int state = leave_gap(job, end);
            if (state < 0)
                return state;
            if (!state)
                continue;
            close_gap(job, job->at);
        }
        if (!object_at(job, &job->window, job->at, end - job->at, &object)) {
            if (is_interrupted(job))
                return INTERRUPTED;
            job->is_in_gap = 1;
            job->gap_begin = job->at;
            continue;
        }
        const uint64_t index = index_of(job, job->at), class = (uint64_t) (object.class - job->classes);
        job->cells[PLANES * (index >> 6)] |= 1ull << (index & 63);
        job->object_count++;
        job->objects[class]++;
        job->bytes[class] += object.bytes;
        job->at += object.bytes;
        window_jump(&job->window, job->at, object.bytes);
    }
    return 0;
}

/* `objects`, `bytes`: by class. */
void heapx_java_walked(const struct java_objects *job, struct walk_sums *sums, uint64_t *objects, uint64_t *bytes)
{
    *sums = (struct walk_sums) {job->part == job->part_count, job->unparsed_bytes, job->gap_count};
    memcpy(objects, job->objects, job->class_count * sizeof *objects);
    memcpy(bytes, job->bytes, job->class_count * sizeof *bytes);
}

/* ---- marks ---- */

static uint32_t rank_of(const struct java_objects *job, uint64_t index)
{
    const uint64_t cell = index >> 6, below = job->cells[PLANES * cell] & ((1ull << (index & 63)) - 1);
    return job->ranks[cell] + (uint32_t) __builtin_popcountll(below);
}

/* Ranks of all objects by address, and room for a parent of each. 0: no memory. */
static int rank_objects(struct java_objects *job)
{
    uint32_t rank = 0;
    uint64_t next = 0;
    if (job->parents || job->object_count > UINT32_MAX - 2)
        return 1;
    job->parents_plane = job->plane;
    job->ranks = job->is_broad ? lazy_alloc(job->cell_bytes / PLANES / 2) : dense_alloc(job->cell_bytes / PLANES / 2);
    job->parents = dense_alloc(((size_t) job->object_count + 1) * sizeof *job->parents);
    for (uint64_t part = 0; job->ranks && job->parents && part < job->part_count; part++) {
        uint64_t cell = index_of(job, job->parts[2 * part]) >> 6;
        const uint64_t last = index_of(job, job->parts[2 * part + 1] - 1) >> 6;
        for (cell = cell > next ? cell : next; cell <= last; cell++) {
            job->ranks[cell] = rank;
            rank += (uint32_t) __builtin_popcountll(job->cells[PLANES * cell]);
        }
        next = cell > next ? cell : next;
    }
    return job->ranks && job->parents;
}

/* The marks at hand are those with parents. */
static int has_parents(const struct java_objects *job)
{
    return job->parents && job->plane == job->parents_plane;
}

static void push(struct java_objects *job, uint64_t entry)
{
    if (job->count == job->room)
        job->is_full = 1;
    else
        job->deque[(job->begin + job->count++) & (job->room - 1)] = entry;
}

/* The rest of a long object has its turn at once, so that few others wait. */
static void push_rest(struct java_objects *job, uint64_t entry)
{
    if (has_parents(job) && job->count < job->room) {
        job->begin = (job->begin - 1) & (job->room - 1);
        job->deque[job->begin] = entry;
        job->count++;
    } else {
        push(job, entry);
    }
}

/* With parents the first comes first, so that paths are short. */
static uint64_t pop(struct java_objects *job)
{
    job->count--;
    if (!has_parents(job))
        return job->deque[(job->begin + job->count) & (job->room - 1)];
    const uint64_t entry = job->deque[job->begin];
    job->begin = (job->begin + 1) & (job->room - 1);
    return entry;
}

/* An object gets its mark, if there is one and it has none yet. `parent`: the index of the object that refers to it. */
static void settle(struct java_objects *job, uint64_t index, uint64_t parent)
{
    const uint64_t bit = 1ull << (index & 63);
    uint64_t *cell = &job->cells[PLANES * (index >> 6)];
    if (!(cell[0] & bit) || cell[job->plane] & bit)
        return;
    cell[job->plane] |= bit;
    if (has_parents(job))
        job->parents[rank_of(job, index)] = parent == UNKNOWN ? 1 : rank_of(job, parent) + 2;
    push(job, index);
}

/* The oldest of the references whose cells are on their way. */
static inline void settle_oldest(struct java_objects *job)
{
    const struct edge *edge = &job->edges[job->edge_begin++ % EDGES];
    job->edge_count--;
    settle(job, edge->index, edge->parent);
}

/* A reference to this address. `only_references`: to a java.lang.ref.Reference, or it counts for nothing. */
static inline void reach(struct java_objects *job, uint64_t address, uint64_t parent, int only_references)
{
    const uint64_t offset = address - job->low, index = offset >> job->unit_shift;
    struct object object;
    if (offset >= job->span || offset & (job->layout.alignment_bytes - 1))
        return;
    if (only_references && (!has_start(job, address) || !object_at(job, NULL, address, job->span - offset, &object)
                            || object.class->kind < SOFT))
        return;
    __builtin_prefetch(&job->cells[PLANES * (index >> 6)], 1);
    if (job->edge_count == EDGES)
        settle_oldest(job);
    job->edges[(job->edge_begin + job->edge_count++) % EDGES] = (struct edge) {index, parent};
}

static inline uint64_t decode(const struct java_objects *job, const uint8_t *at)
{
    const uint64_t value = load_word(at, job->oop, job->swap);
    return job->oop == 4 && value ? job->layout.oop_base + (value << job->layout.oop_shift) : value;
}

/* A run of places in an object: references; or, of a stack, what may be some. */
struct places {
    uint64_t from, count;
    int is_stack;
    uint64_t bits;                  /* where a bit of each place of a stack tells whether it is a reference; UNKNOWN: nothing does */
};

/* The references behind those of its class: elements, static fields, frames. */
static struct places find_tail(struct java_objects *job, uint64_t address, const struct object *object)
{
    const struct known_class *class = object->class;
    const struct object_layout *layout = &job->layout;
    const uint64_t slots = 8 / job->oop;
    struct places tail = {class->bytes, 0, 0, UNKNOWN};
    uint8_t to[4];
    const uint8_t *at;
    if (class->form != INSTANCE) {
        tail.count = class->form == OBJECTS ? object->number : 0;
    } else if (class->kind == MIRROR && layout->mirror_static_count_offset < class->bytes) {
        const uint64_t most = (object->bytes - class->bytes) / job->oop;
        at = bytes_at(job, address + layout->mirror_static_count_offset, 4, to);
        tail.count = at ? load_word(at, 4, job->swap) : 0;
        tail.count = tail.count < most ? tail.count : most;
    } else if (class->kind == STACK_CHUNK) {
        at = layout->chunk_sp_offset < class->bytes ? bytes_at(job, address + layout->chunk_sp_offset, 4, to) : NULL;
        const uint64_t sp = at ? load_word(at, 4, job->swap) : 0, used = sp <= object->number ? sp : 0;
        at = layout->chunk_flags_offset < class->bytes ? bytes_at(job, address + layout->chunk_flags_offset, 1, to) : NULL;
        tail = (struct places) {class->bytes + 8 * used, (object->number - used) * slots, 1, UNKNOWN};
        if (at && *at & HAS_BITMAP)
            tail.bits = class->bytes + 8 * object->number;
    }
    return tail;
}

/* References at the places [from, from + count) of a run, 0 where none is; a stack has as many more behind, where words of 8 bytes may be
   some. How many; -1: interrupted. */
static int64_t load_places(struct java_objects *job, uint64_t address, const struct known_class *class, const struct places *places,
                           uint64_t from, uint64_t count, uint64_t *values)
{
    const uint64_t begin = address + places->from + from * job->oop, bit = from + (places->from - class->bytes) / job->oop;
    const uint64_t all = places->is_stack ? 2 * count : count;
    uint8_t to[PIECE], flags_to[PIECE];
    const uint8_t *bytes = bytes_at(job, begin, count * job->oop, to), *flags = NULL;
    if (bytes && places->bits != UNKNOWN) {
        const uint64_t first = bit / 64 * 8;
        flags = bytes_at(job, address + places->bits + first, (bit + count + 63) / 64 * 8 - first, flags_to);
        bytes = flags ? bytes : NULL;
    }
    for (uint64_t i = 0; bytes && i < count; i++)
        values[i] = decode(job, bytes + i * job->oop);
    for (uint64_t i = 0; bytes && places->is_stack && i < count; i++) {
        const uint64_t place = bit % 64 + i;
        values[count + i] = flags || i % (8 / job->oop) ? 0 : load_word(bytes + i * job->oop, 8, job->swap);
        if (flags && !(load_word(flags + place / 64 * 8, 8, job->swap) >> place % 64 & 1))
            values[i] = 0;
    }
    return job->pages.interrupted ? -1 : bytes ? (int64_t) all : 0;
}

/* Follows some places. 0: interrupted. */
static int follow(struct java_objects *job, uint64_t address, const struct known_class *class, const struct places *places, uint64_t from,
                  uint64_t until, int only_references)
{
    uint64_t values[2 * AT_ONCE];
    for (uint64_t count; from < until; from += count) {
        count = until - from < AT_ONCE ? until - from : AT_ONCE;
        const int64_t loaded = load_places(job, address, class, places, from, count, values);
        for (int64_t i = 0; i < loaded; i++)
            reach(job, values[i], index_of(job, address), only_references);
        if (loaded < 0)
            return 0;
    }
    return 1;
}

static struct places block_places(const struct java_objects *job, const struct known_class *class, uint64_t number)
{
    const uint64_t *block = &job->blocks[2 * (class->first_block + number)];
    return (struct places) {block[0], (block[1] - block[0]) / job->oop, 0, UNKNOWN};
}

/* Follows the references that a class says of its objects. 0: interrupted. */
static int follow_blocks(struct java_objects *job, uint64_t address, const struct known_class *class, int only_references)
{
    const uint64_t *block = &job->blocks[2 * class->first_block], *last = block + 2 * class->block_count, begin = block[0];
    uint8_t to[PIECE];
    const uint8_t *bytes = last[-1] - begin <= PIECE ? bytes_at(job, address + begin, last[-1] - begin, to) : NULL;
    for (; bytes && block < last; block += 2)
        for (uint64_t at = block[0]; at < block[1]; at += job->oop)
            reach(job, decode(job, bytes + (at - begin)), index_of(job, address), only_references);
    for (uint64_t i = 0; !bytes && i < class->block_count; i++) {   /* they are far from each other, or some of them cannot be read */
        const struct places places = block_places(job, class, i);
        if (!follow(job, address, class, &places, 0, places.count, only_references))
            return 0;
    }
    return !job->pages.interrupted;
}

/* Follows what an object refers to, a long one in several turns. 0: interrupted. */
static int enter(struct java_objects *job, uint64_t entry)
{
    const uint64_t index = entry & ((1ull << INDEX_BITS) - 1), turn = entry >> INDEX_BITS, address = address_of(job, index);
    struct object object;
    if (!object_at(job, NULL, address, job->low + job->span - address, &object))
        return !job->pages.interrupted;
    const struct known_class *class = object.class;
    const int only_references = job->skipped_kinds[job->plane] >> class->kind & 1;
    job->reached[job->plane * job->class_count + (uint64_t) (class - job->classes)] = 1;
    if (!turn && class->block_count && !follow_blocks(job, address, class, only_references))
        return 0;
    if (class->form == INSTANCE && class->number_at == UNKNOWN)
        return 1;
    const struct places tail = find_tail(job, address, &object);
    const uint64_t from = turn * SLOTS_AT_ONCE, until = tail.count - from > SLOTS_AT_ONCE ? from + SLOTS_AT_ONCE : tail.count;
    if (job->pages.interrupted || (from < tail.count && !follow(job, address, class, &tail, from, until, only_references)))
        return 0;
    if (from < tail.count && until < tail.count)
        push_rest(job, index | (turn + 1) << INDEX_BITS);
    return 1;
}

/* After the deque was full: objects that are marked come again, in the order of addresses. 0: that is over. */
static int scan_on(struct java_objects *job)
{
    if (!job->is_scanning) {
        if (!job->is_full)
            return 0;
        job->is_full = 0;
        job->is_scanning = 1;
        job->scan_part = job->scan_index = 0;
    }
    for (; job->scan_part < job->part_count; job->scan_part++) {
        const uint64_t begin = index_of(job, job->parts[2 * job->scan_part]), end = index_of(job, job->parts[2 * job->scan_part + 1]);
        uint64_t index = job->scan_index > begin ? job->scan_index : begin;
        for (; job->count < NEAR; index++) {
            index = next_bit(job, (unsigned) job->plane, index, end);
            if (index == end)
                break;
            push(job, index);
        }
        job->scan_index = index;
        if (job->count)
            return 1;
    }
    job->is_scanning = 0;
    return job->is_full;
}

/* Objects at these addresses, each exactly an object's, are marked and wait for heapx_java_mark(). `number`: below MARK_COUNT; what has
   marks keeps them. `skipped_kinds`: a bit of each kind whose own references are not followed, but to other References. `with_parents`:
   one mark at most. 0: no memory. */
int heapx_java_roots(struct java_objects *job, uint64_t number, uint64_t skipped_kinds, int with_parents, const uint64_t *roots,
                     uint64_t count)
{
    if (!job->is_mapped)
        source_map(job->source);
    job->is_mapped = 1;
    job->plane = 1 + number;
    job->skipped_kinds[job->plane] = skipped_kinds;
    if (with_parents && !rank_objects(job))
        return 0;
    for (uint64_t i = 0; i < count; i++)
        if (has_start(job, roots[i]))
            settle(job, index_of(job, roots[i]), UNKNOWN);
    return 1;
}

/* 1: there is more to do; 0; INTERRUPTED. */
int64_t heapx_java_mark(struct java_objects *job, double seconds)
{
    const double deadline = clock_now() + seconds;
    resume(job);
    for (unsigned steps = 1;; steps++) {
        while (job->count && job->near_count < NEAR) {
            const uint64_t entry = pop(job), offset = (entry & ((1ull << INDEX_BITS) - 1)) << job->unit_shift;
            const uint8_t *at = job->direct[offset >> GRANULE_SHIFT];
            if (at && at != &not_direct) {
                __builtin_prefetch(at + (offset & (GRANULE - 1)));
                __builtin_prefetch(at + (offset & (GRANULE - 1)) + 32);
            }
            job->near[(job->near_begin + job->near_count++) % NEAR] = entry;
        }
        if (!job->near_count) {
            if (job->edge_count)
                settle_oldest(job);
            else if (!scan_on(job))
                return 0;
            continue;
        }
        if (!enter(job, job->near[job->near_begin]))
            return INTERRUPTED;
        job->near_begin = (job->near_begin + 1) % NEAR;
        job->near_count--;
        if (steps % (STEPS / 4) == 0 && clock_now() > deadline)
            return 1;
    }
}

/* 1 of each class that a marked object has. */
void heapx_java_reached(const struct java_objects *job, uint64_t number, uint8_t *classes)
{
    memcpy(classes, job->reached + (1 + number) * job->class_count, job->class_count);
}

static uint8_t marks_of(const struct java_objects *job, uint64_t index)
{
    unsigned marks = 0;
    for (unsigned mark = 0; mark < MARK_COUNT; mark++)
        marks |= (unsigned) (job->cells[PLANES * (index >> 6) + 1 + mark] >> (index & 63) & 1) << mark;
    return (uint8_t) marks;
}

/* IS_OBJECT where an object begins at the address, and its marks, a bit each; else 0. */
void heapx_java_look_up(const struct java_objects *job, const uint64_t *addresses, uint64_t count, uint8_t *out)
{
    for (uint64_t i = 0; i < count; i++)
        out[i] = has_start(job, addresses[i]) ? (uint8_t) (IS_OBJECT | marks_of(job, index_of(job, addresses[i]))) : 0;
}

/* The object of a rank. */
static uint64_t select_object(const struct java_objects *job, uint32_t rank)
{
    uint64_t low = 0, high = job->part_count;
    while (high - low > 1) {
        const uint64_t middle = low + (high - low) / 2;
        if (job->ranks[index_of(job, job->parts[2 * middle]) >> 6] <= rank)
            low = middle;
        else
            high = middle;
    }
    high = (index_of(job, job->parts[2 * low + 1] - 1) >> 6) + 1;
    low = index_of(job, job->parts[2 * low]) >> 6;
    while (high - low > 1) {
        const uint64_t middle = low + (high - low) / 2;
        if (job->ranks[middle] <= rank)
            low = middle;
        else
            high = middle;
    }
    uint64_t bits = job->cells[PLANES * low];
    for (rank -= job->ranks[low]; rank && bits; rank--)
        bits &= bits - 1;
    return address_of(job, (low << 6) + (bits ? (unsigned) __builtin_ctzll(bits) : 0));
}

/* Where an object refers to another: the place's number in the run; UNKNOWN. */
static uint64_t find_place(struct java_objects *job, uint64_t address, const struct known_class *class, const struct places *places,
                           uint64_t wanted)
{
    uint64_t values[2 * AT_ONCE];
    for (uint64_t from = 0, count; from < places->count; from += count) {
        count = places->count - from < AT_ONCE ? places->count - from : AT_ONCE;
        const int64_t loaded = load_places(job, address, class, places, from, count, values);
        for (int64_t i = 0; i < loaded; i++)
            if (values[i] == wanted)
                return from + (uint64_t) i % count;
    }
    return UNKNOWN;
}

/* The object by which this one was marked, its class, and the place of the reference: an array's index, else the offset; UINT64_MAX: it has
   none any more. Address 0: it is a root. 0: it has no mark with parents. */
int heapx_java_parent(struct java_objects *job, uint64_t address, struct object_parent *out)
{
    struct object object;
    *out = (struct object_parent) {0, UNKNOWN, UNKNOWN};
    resume(job);
    const uint32_t parent = job->parents && has_start(job, address) ? job->parents[rank_of(job, index_of(job, address))] : 0;
    if (parent < 2)
        return parent == 1;
    out->address = select_object(job, parent - 2);
    if (!object_at(job, NULL, out->address, job->low + job->span - out->address, &object))
        return 1;
    const struct known_class *class = object.class;
    out->class_index = (uint64_t) (class - job->classes);
    for (uint64_t i = 0; i <= class->block_count && out->place == UNKNOWN; i++) {
        const struct places run = i < class->block_count ? block_places(job, class, i) : find_tail(job, out->address, &object);
        const uint64_t place = find_place(job, out->address, class, &run, address);
        out->place = place == UNKNOWN || class->form != INSTANCE ? place : run.from + place * job->oop;
    }
    return 1;
}

/* ---- the border ---- */

/* `ranges`: sorted, without overlap; the caller's. Sums begin at 0. */
void heapx_java_border_open(struct java_objects *job, const uint64_t *ranges, uint64_t count)
{
    job->ranges = ranges;
    job->range_count = count;
    job->part = job->offset = 0;
    job->is_in_gap = 0;
    job->at = job->part_count ? job->parts[0] : 0;
    memset(job->set_objects, 0, (size_t) (job->class_count + 1) * MARK_SETS * 2 * sizeof *job->set_objects);
}

/* Where the words of an object that may lead elsewhere end; *offset: where they begin, or from where on it is asked. */
static uint64_t words_end(const struct java_objects *job, const struct object *object, uint64_t *offset)
{
    const struct known_class *class = object->class;
    if (!job->range_count || (class->form != INSTANCE && class->form != LONGS) || class->kind == STACK_CHUNK)
        return 0;
    const uint64_t begin = class->form == LONGS ? class->bytes : (job->class_end + 7) & ~7u;
    *offset = *offset > begin ? *offset : begin;
    return class->form == LONGS ? class->bytes + 8 * object->number : object->bytes;
}

/* Rows of ROWS_AT_ONCE at most: the words of objects that are multiples of 8 in a range and no references. 1: there is more to do; 0;
   INTERRUPTED. */
int64_t heapx_java_border(struct java_objects *job, double seconds, uint32_t *classes, uint32_t *offsets, uint64_t *values,
                          uint64_t *objects, uint8_t *marks, uint64_t *rows)
{
    const double deadline = clock_now() + seconds;
    const uint64_t low = job->range_count ? job->ranges[0] : 0, span = job->range_count ? job->ranges[2 * job->range_count - 1] - low : 0;
    struct object object;
    resume(job);
    *rows = 0;
    for (unsigned steps = 1; job->part < job->part_count; steps++) {
        if (steps % STEPS == 0 && clock_now() > deadline)
            return 1;
        if (is_at_end(job))
            continue;
        const uint64_t end = job->parts[2 * job->part + 1], index = next_bit(job, 0, index_of(job, job->at), index_of(job, end));
        const uint64_t address = address_of(job, index);
        if (address >= end || !object_at(job, &job->window, address, end - address, &object)) {
            if (is_interrupted(job))
                return INTERRUPTED;
            job->at = address >= end ? end : address + job->layout.alignment_bytes;
            job->offset = 0;
            continue;
        }
        const struct known_class *class = object.class;
        const uint64_t number = (uint64_t) (class - job->classes), until = words_end(job, &object, &job->offset);
        const uint64_t *block = &job->blocks[2 * class->first_block], *last = block + 2 * class->block_count;
        const struct places tail = until && class->kind == MIRROR ? find_tail(job, address, &object) : (struct places) {0, 0, 0, 0};
        const uint8_t mark = marks_of(job, index);
        job->at = address;
        for (; job->offset + 8 <= until; job->offset += 8) {
            if (++steps % STEPS == 0 && clock_now() > deadline)
                return 1;
            while (block < last && block[1] <= job->offset)
                block += 2;
            if ((block < last && block[0] < job->offset + 8)
                || (job->offset + 8 > tail.from && job->offset < tail.from + tail.count * job->oop))
                continue;
            const uint8_t *at = window_at(&job->window, address + job->offset, 8);
            if (!at && is_interrupted(job))
                return INTERRUPTED;
            const uint64_t value = at ? load_word(at, 8, job->swap) : 0;
            if (value - low >= span || value & 7 || !range_at(job->ranges, job->range_count, value))
                continue;
            if (*rows == ROWS_AT_ONCE)
                return 1;
            classes[*rows] = (uint32_t) number;
            offsets[*rows] = class->form == LONGS ? ANY_ELEMENT : (uint32_t) job->offset;
            values[*rows] = value;
            objects[*rows] = address;
            marks[(*rows)++] = mark;
        }
        job->set_objects[number * MARK_SETS + mark]++;
        job->set_bytes[number * MARK_SETS + mark] += object.bytes;
        job->at = address + object.bytes;
        job->offset = 0;
        window_jump(&job->window, job->at, object.bytes);
    }
    return 0;
}

/* Of all objects, by class and marks: MARK_SETS numbers a class. */
void heapx_java_border_sums(const struct java_objects *job, uint64_t *objects, uint64_t *bytes)
{
    memcpy(objects, job->set_objects, job->class_count * MARK_SETS * sizeof *objects);
    memcpy(bytes, job->set_bytes, job->class_count * MARK_SETS * sizeof *bytes);
}
