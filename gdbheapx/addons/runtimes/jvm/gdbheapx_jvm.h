/* What C and Python both declare of jvm/: numbers, structs and functions. */
#pragma once

#include "common/gdbheapx.h"

/* ---- java_classes.py ---- */

enum { PLAIN = 0, MIRROR = 1, STACK_CHUNK = 2, SOFT = 3, WEAK = 4, FINAL = 5, PHANTOM = 6 };

/* ---- java_holders.py ---- */

enum { MARK_COUNT = 3, MARK_SETS = 8, IS_OBJECT = 8, ROWS_AT_ONCE = 65536 };
enum { SPAN_BITS = 44 };
#define ANY_ELEMENT 0xffffffff

struct object_layout {
    uint64_t little_endian, oop_base, oop_shift, oop_bytes, class_offset, class_bytes, mark_class_shift, alignment_bytes,
        array_length_offset, mirror_size_offset, mirror_static_count_offset, chunk_size_offset, chunk_sp_offset, chunk_flags_offset;
};

struct object_class {
    uint64_t key, layout_helper, kind, first_block, block_count;
};

struct walk_sums {
    uint64_t is_whole, unparsed_bytes, gaps;
};

struct object_parent {
    uint64_t address, class_index, place;
};

struct java_objects;
struct source;

#pragma GCC visibility push(default)

/* ---- java_holders.py ---- */

struct java_objects *heapx_java_new(const struct source *source, const struct object_layout *layout, const struct object_class *classes,
    uint64_t class_count, const uint64_t *blocks, uint64_t block_count, const uint64_t *parts, uint64_t part_count);
void heapx_java_free(struct java_objects *job);
int64_t heapx_java_walk(struct java_objects *job, double seconds);
void heapx_java_walked(const struct java_objects *job, struct walk_sums *sums, uint64_t *objects, uint64_t *bytes);
int heapx_java_roots(struct java_objects *job, uint64_t number, uint64_t skipped_kinds, int with_parents, const uint64_t *roots,
    uint64_t count);
int64_t heapx_java_mark(struct java_objects *job, double seconds);
void heapx_java_reached(const struct java_objects *job, uint64_t number, uint8_t *classes);
void heapx_java_look_up(const struct java_objects *job, const uint64_t *addresses, uint64_t count, uint8_t *out);
int heapx_java_parent(struct java_objects *job, uint64_t object, struct object_parent *out);
void heapx_java_border_open(struct java_objects *job, const uint64_t *ranges, uint64_t count);
int64_t heapx_java_border(struct java_objects *job, double seconds, uint32_t *classes, uint32_t *offsets, uint64_t *values,
    uint64_t *objects, uint8_t *marks, uint64_t *rows);
void heapx_java_border_sums(const struct java_objects *job, uint64_t *objects, uint64_t *bytes);

#pragma GCC visibility pop
