/* What C and Python both declare of blocks/: numbers, structs and functions. */
#pragma once

#include "../common/gdbheapx.h"

/* ---- graph_queries.py ---- */

struct fill_rule {
    uint64_t label, pointer, length_at, length_bytes, unit_bytes, head_bytes, test_at, test_mask, test_value;
};

/* ---- graph.py ---- */

enum { RULE_START = 0, RULE_TAG = 1, RULE_BASE = 2, RULE_HABIT = 3, RULE_INSIDE = 4, RULE_END = 5 };
enum { RULES = 6, UNOWNING = 10, LEAKED = 15 };
enum { LEAK_ROOT = 1, LEAK_CYCLE = 2 };
enum {
    FROM_MAPPING = 6, MASKED = 7, LAST_OWNING_BIT = 63, LEAK_SAMPLES = 5, NOT_COUNTED = -3, MOST_HABITS = 32
};
#define NO_NODE 0xffffffffu
#define EXACT_SLOT 0xffffff00u
#define OWNS_ALL 0xffffffffffffffffull

struct graph_numbers {
    uint64_t blocks, nodes, edges, candidates, unread_bytes, unread_at, odd_blocks, bytes_read;
};

struct habit {
    uint64_t offset, blocks, references;
};

struct edge {
    uint64_t node, rule, slot;
};

struct leak_root {
    uint64_t id, is_cycle, blocks, bytes, place;
};

struct leak_group {
    uint64_t size_bytes, is_cycle, label, roots, blocks_behind, bytes_behind;
};

struct sum {
    uint64_t blocks, bytes;
};

struct others {
    uint64_t stacks, unowning, weak;
};

struct joint {
    uint64_t node, bytes, blocks;
};

struct container_row {
    uint64_t elements, element_bytes, own_bytes, entries, shape, sure;
};

/* ---- packed.py ---- */

enum {
    PACKED_ADDRESSES = 0, PACKED_SIZES = 1, PACKED_DEGREES = 2, PACKED_EDGES = 3, PACKED_KINDS = 4,
    PACKED_INSIDE = 5, PACKED_SLOTS = 6, PACKED_STREAMS = 7
};
enum { PACKED_LINK = 8, PACKED_UNOWNING = 64 };
enum { PACKED_LOOSE = 16, PACKED_SURE = 32 };
enum { MOST_SLOTS = 1048576, SLOT_SHIFT = 26 };
enum { OUTSIDE = -3 };
#define HIGHEST 0x4000000000000ull

/* ---- pages.py ---- */

enum { EDGE = 0, HOLE = 1, LISTED = 2, RESERVE = 3, ROOM = 4, APART = 5, SITUATIONS = 6 };
enum { PIN_USED = 0, PIN_CACHED = 1, PIN_OWN = 2, PIN_NONE = 3 };
enum { MOST_KINDS = 16 };
#define BY_SEVERAL 0xffffffffu
#define BY_NOBODY 0xfffffffeu

struct pin_numbers {
    uint64_t page_bytes, head_bytes, lead_bytes, kinds;
};

struct pin_group {
    uint64_t situation, status, label, top, size, arena, kept_bytes, alone_bytes, places, blocks, block_bytes,
        least_bytes, most_bytes, sample;
};

/* ---- slots.py ---- */

enum { POOL_HEADER_BYTES = 48 };

struct pool_sums {
    uint64_t pools, used_bytes, free_bytes, lost_bytes, free_pools, bad;
};

/* ---- stream.py ---- */

enum {
    CLASS_USED = 0, CLASS_CACHED = 1, CLASS_FREE = 2, CLASS_RESERVE = 3, CLASS_OVERHEAD = 4,
    CLASS_RETURNED = 5
};
#define NO_ARENA 0xffffffffu

struct block_wanted {
    uint64_t kinds, min_size, max_size, start;
};

struct block_state {
    uint64_t ended, stop, at;
};

/* ---- signatures.py ---- */

enum { EQUAL = 0, NOT_EQUAL = 1, AT_MOST = 2, AT_LEAST = 3, IN_SET = 4, IN_RANGES = 5 };
enum { NUMBER = 0, USABLE = 1, ADDRESS = 2, FIELD = 3 };
enum { MOST_KEYS = 1048576, MOST_OBJECT_BYTES = 1024, MOST_SAME = 128 };
enum { SIZED_BITS = 48, MOST_SIZED = 65534 };
enum {
    REFERRED = 0, ROOTED = 1, SIZED = 2, BEGINS_TEXT = 3, ONLY_ZEROS = 4, STRING = 5, VECTOR = 6, TREE = 7,
    BUCKETS = 8, CHAIN = 9, LIST = 10, DEQUE = 11, BUFFERS = 12, HASHES = 13
};
enum {
    NUMBERS = 14, POINTERS = 15, COPIES = 16, DYNS = 17, SHARED_DYNS = 18, VECS = 19, BTREES = 20,
    COUNTED = 21, MEMBERS = 22, ROOTED_MEMBERS = 23, ROWS_BEYOND = 24
};
enum { MEMBER_SHAPE = 28, MEMBER_SLOT = 268435455 };
enum { CPLUSPLUS = 1, RUST = 2 };
enum { UNKNOWN = 0, KNOWN = 1, BY_CONTENT = 2, COUNTS = 3, STRONG = 4, BY_BEGIN = 5 };
enum { CAPACITY_POINTER_LENGTH = 0, POINTER_CAPACITY_LENGTH = 1, VEC_ORDERS = 2 };
enum { SIGNED_BYTES = 512, UNSIGNED = 0, READ_BYTES = 131072 };
#define OTHERS 0xffffffffffffffffull
#define ELEMENT 0xfffffffeu

struct condition {
    uint64_t offset, width, op, operand, base, mask, other;
};

struct row_numbers {
    uint64_t least_usable, most_usable, key_offset, key_width, key_mask, first, end, sized, weak;
};

/* ---- slots.py ---- */

enum {
    SLOT_PAUSED = 0, SLOT_READ = 1, SLOT_UNREADABLE = 2, SLOT_STRAY = 3, SLOT_TWICE = 4, SLOT_OWN = 16,
    SLOT_KINDS = 64
};
enum { MOST_SLOT_PROBLEMS = 1000 };

struct slot_run {
    uint64_t start, slot_bytes, slots, usable_bytes, arena, label, kind, free_kind, free_mask, base, is_read,
        tag;
};

struct slot_tally {
    uint64_t used_slots, free_slots, listed_slots, used_bytes, free_bytes, slot_bytes, broken_slots;
};

struct slot_problem {
    uint64_t address, base, code;
};

struct slot_sums {
    uint64_t ended, at, problems, told, strays;
};

struct block_source;
struct containers;
struct copies;
struct fill;
struct gathering;
struct graph;
struct leak_group_row;
struct linked;
struct packer;
struct page_table;
struct pins;
struct referrals;
struct signer;
struct slot_tally_job;
struct source;
struct stacks;
struct ways;
struct weak;

#pragma GCC visibility push(default)

/* ---- stream.py ---- */

struct block_source *heapx_blocks_join(const uint64_t *sources, uint64_t count);
struct block_source *heapx_blocks_listed(uint64_t *addresses, uint64_t *usable, uint8_t *classes, uint8_t *kinds, uint32_t *arenas,
    uint64_t count);
struct block_source *heapx_blocks_merge(struct block_source *inner, uint64_t *addresses, uint64_t *usable, uint8_t *classes, uint8_t *kinds,
    uint32_t *arenas, uint64_t count);
int64_t heapx_blocks_next(struct block_source *source, double seconds, uint64_t *addresses, uint64_t *usable, uint8_t *classes,
    uint8_t *kinds, uint32_t *arenas, uint64_t room);
void heapx_blocks_state(const struct block_source *source, struct block_state *out);
void heapx_blocks_free(struct block_source *source);
uint64_t heapx_blocks_cells(const uint64_t *runs, uint64_t run_count, const uint32_t *labels, uint64_t *addresses, uint64_t *usable);
int64_t heapx_blocks_unlist(const struct source *memory, int little_endian, const uint64_t *runs, uint64_t run_count, const uint64_t *heads,
    uint64_t head_count, uint64_t most, uint32_t *labels);

/* ---- graph_queries.py ---- */

void heapx_copies_free(struct copies *copies);
struct copies *heapx_copies_new(const struct signer *signer, const struct graph *graph, const struct source *memory);
int64_t heapx_copies_slice(struct copies *copies, double seconds);
int64_t heapx_copies_found(const struct copies *copies, uint64_t *sums, uint64_t *by_label, uint64_t *largest, uint64_t room);

/* ---- graph_queries.py ---- */

int heapx_cycles_find(const struct graph *graph, uint32_t first, uint32_t end, const uint32_t *labels, const uint64_t *countings,
    uint64_t label_count, uint8_t *state);
int heapx_cycles_behind(const struct graph *graph, const uint8_t *state, const uint32_t *labels, const uint32_t *asked,
    uint64_t asked_count, uint64_t *out);

/* ---- graph_queries.py ---- */

void heapx_fill_free(struct fill *fill);
struct fill *heapx_fill_new(const struct signer *signer, const struct graph *graph, const struct source *memory,
    const struct fill_rule *rules, uint64_t rule_count, const uint64_t *bases, int has_classes);
int64_t heapx_fill_slice(struct fill *fill, double seconds);
void heapx_fill_found(const struct fill *fill, uint64_t *out);

/* ---- graph.py ---- */

int heapx_graph_dominators(const struct graph *graph, uint32_t roots_from, uint32_t locals_from, uint32_t weak_from, uint32_t weak_until,
    const struct containers *containers, uint32_t *owners, uint64_t *bytes, uint32_t *blocks);
struct linked *heapx_groups_new(const struct graph *graph, stop_call is_asked);
void heapx_groups_free(struct linked *linked);
void heapx_groups_of(const struct linked *linked, uint32_t *of);
struct containers *heapx_containers_new(const struct graph *graph, const struct linked *linked, uint32_t locals_from, uint32_t weak_from,
    stop_call is_asked);
void heapx_containers_free(struct containers *containers);
uint64_t heapx_containers_count(const struct containers *containers);
void heapx_containers_of(const struct containers *containers, uint32_t *of);
void heapx_container_row(const struct graph *graph, struct containers *containers, uint32_t number, struct container_row *out);
void heapx_container_entries(const struct graph *graph, const struct containers *containers, uint32_t number, uint64_t *out, uint64_t room);
int64_t heapx_container_users(const struct graph *graph, struct containers *containers, uint32_t number, uint32_t node,
    const uint32_t *owners, uint64_t *left, uint64_t *out, uint64_t room, uint64_t *sums);
uint64_t heapx_container_members(const struct containers *containers, uint32_t number, uint64_t first, uint32_t *out, uint64_t room);
struct gathering *heapx_gather_new(struct block_source *blocks, const uint64_t *own, uint64_t own_count);
void heapx_gather_free(struct gathering *gathering);
int64_t heapx_gather_slice(struct graph *graph, struct gathering *gathering, double seconds);
uint64_t heapx_gather_done(const struct gathering *gathering);
int64_t heapx_graph_scan(struct graph *graph, uint64_t base, uint64_t *at, uint64_t end, double seconds);
int64_t heapx_graph_scan_bytes(struct graph *graph, const uint8_t *bytes, uint64_t size, uint64_t first_slot);
int64_t heapx_graph_end_node(struct graph *graph);
struct graph *heapx_graph_new(const struct source *memory, unsigned word, int little_endian, unsigned shift, unsigned all_slots,
    const uint64_t *heaps, uint64_t heap_count, const uint64_t *mappings, uint64_t mapping_count, const struct source *images,
    const uint64_t *ranges, uint64_t range_count, uint64_t ignored, unsigned threads);
void heapx_graph_free(struct graph *graph);
void heapx_graph_sign(struct graph *graph, struct signer *signer);
int64_t heapx_graph_settle(struct graph *graph);
int64_t heapx_graph_resolve(struct graph *graph, double seconds);
uint64_t heapx_graph_resolve_done(const struct graph *graph);
void heapx_graph_numbers(const struct graph *graph, struct graph_numbers *out, uint64_t *by_rule);
uint32_t heapx_graph_find(const struct graph *graph, uint64_t address, uint64_t *offset);
void heapx_graph_blocks(const struct graph *graph, const uint32_t *ids, uint64_t count, uint64_t *addresses, uint64_t *sizes);
uint64_t heapx_graph_edges(const struct graph *graph, uint32_t node, struct edge *out, uint64_t room);
void heapx_graph_note_unowning(struct graph *graph);
int heapx_graph_find_unowning(struct graph *graph);
uint64_t heapx_graph_habits(struct graph *graph, struct habit *out, uint64_t room);
uint64_t heapx_leak_root_ids(const struct graph *graph, uint32_t *out, uint64_t room);
int64_t heapx_leak_groups(const struct graph *graph, const uint32_t *labels, struct leak_group_row *out, uint64_t room);
void heapx_leak_kinds(const struct graph *graph, const uint32_t *ids, uint64_t count, uint8_t *out);
int heapx_leak_roots_open(struct graph *graph, const struct containers *containers);
int64_t heapx_leak_roots_slice(struct graph *graph, double seconds);
uint64_t heapx_leak_roots_result(const struct graph *graph, struct leak_root *out, uint64_t room);
int heapx_marks_open(struct graph *graph, uint32_t roots_from);
int64_t heapx_marks_slice(struct graph *graph, double seconds);
void heapx_marks_sums(const struct graph *graph, struct sum *out);
unsigned heapx_marks_evidence(const struct graph *graph, uint32_t node);
uint64_t heapx_marks_list(const struct graph *graph, unsigned kinds, uint32_t from, uint32_t end, uint32_t *out, uint8_t *evidence,
    uint64_t room, uint32_t *next);
void heapx_marks_offsets(const struct graph *graph, uint64_t *counts, uint64_t room);
uint64_t heapx_graph_referrers(const struct graph *graph, uint32_t node, struct edge *out, uint64_t room);
int heapx_graph_parents(const struct graph *graph, uint32_t roots_from, uint32_t *parents);
int heapx_graph_own(struct graph *graph, const uint32_t *labels, const uint64_t *masks, const uint64_t *begins, const uint64_t *ends,
    uint64_t label_count, const uint32_t *nothing, uint64_t nothing_count, const uint32_t *starts, uint64_t start_count,
    uint64_t first_count);
int heapx_graph_edge_to(const struct graph *graph, uint32_t node, uint32_t target, struct edge *out);
void heapx_graph_loosen(struct graph *graph, uint32_t node, uint64_t first, uint64_t end);
void heapx_graph_pass_by(struct graph *graph, uint32_t node, uint64_t slot);
void heapx_graph_only_holders(const struct graph *graph, uint32_t *holders);
struct ways *heapx_ways_new(const struct graph *graph, uint32_t roots_from, uint32_t data, int is_any, uint32_t *parents);
void heapx_ways_to(struct ways *ways, uint32_t node);
void heapx_ways_free(struct ways *ways);
int heapx_graph_reached(const struct graph *graph, uint32_t node, const uint32_t *owners, const uint32_t *first, const uint32_t *next,
    uint64_t *bytes, uint64_t *blocks);
int heapx_graph_split(struct graph *graph, const uint32_t *nodes, const uint32_t *slots, uint32_t count);
void heapx_tree_others(const struct graph *graph, const uint32_t *under, const uint32_t *asked, uint32_t weak_from, uint32_t weak_until,
    struct others *out);
void heapx_tree_index(const uint32_t *owners, uint32_t nodes, uint32_t *first, uint32_t *next);
uint64_t heapx_tree_children(const uint32_t *owners, const uint64_t *bytes, uint32_t begin, const uint32_t *next, uint32_t end,
    uint32_t owner, uint32_t *out, uint64_t room);
void heapx_tree_under(const uint32_t *owners, uint32_t nodes, uint32_t *under);
int64_t heapx_graph_joint(const struct graph *graph, const uint32_t *owners, const uint64_t *retained, uint32_t first, uint32_t end,
    struct joint *out, uint64_t room);
int64_t heapx_tree_classes(const struct graph *graph, const uint32_t *under, uint32_t tops, const uint32_t *labels, uint32_t label_count,
    uint64_t *out, uint64_t room);
void heapx_marks_set(struct graph *graph, const uint32_t *nodes, const uint8_t *evidence, uint64_t count);
struct weak *heapx_weak_new(const struct graph *graph, uint64_t guard, unsigned turn, uint64_t ignorable, unsigned threads);
void heapx_weak_free(struct weak *weak);
int64_t heapx_weak_scan(struct weak *weak, uint64_t *at, uint64_t end, double seconds);
int64_t heapx_weak_blocks(struct weak *weak, double seconds);
int64_t heapx_weak_settle(struct weak *weak, double seconds);
uint64_t heapx_weak_tagged(const struct weak *weak);
uint64_t heapx_graph_large(const struct graph *graph, uint64_t least, uint64_t *out, uint64_t room);

/* ---- graph_queries.py ---- */

uint64_t heapx_labelled(const uint32_t *labels, uint64_t blocks, const uint8_t *wanted, uint64_t label_count, uint32_t *out, uint64_t room);
int heapx_renumber(const uint32_t *labels, uint64_t blocks, const uint32_t *numbers, uint64_t label_count, unsigned bytes, uint8_t *out);

/* ---- packed.py ---- */

void heapx_packer_free(struct packer *packer);
struct packer *heapx_packer_new(const struct graph *graph, const uint64_t *moves, uint64_t move_count, unsigned slots);
int64_t heapx_packer_next(struct packer *packer, uint8_t *out, uint64_t room);
struct graph *heapx_graph_unpack(unsigned word, unsigned shift, unsigned slots, const uint64_t *mappings, uint64_t mapping_count,
    const uint64_t *streams, const uint16_t *habits, uint64_t habit_count, int *why);

/* ---- pages.py ---- */

void heapx_pins_free(struct pins *pins);
struct pins *heapx_pins_new(const struct pin_numbers *shape, const uint64_t *overheads, const uint64_t *rooms, uint64_t room_count,
    const uint64_t *apart, uint64_t apart_count, const uint64_t *own, uint64_t own_count);
void heapx_pins_spans(struct pins *pins, const uint64_t *spans, uint64_t count);
void heapx_pins_label(struct pins *pins, const struct graph *graph, const uint32_t *labels, uint64_t count, uint64_t first);
int heapx_pins_own(struct pins *pins, const uint32_t *owners, const uint64_t *retained, uint64_t count, uint64_t least);
void heapx_pins_groups(const struct pins *pins, struct pin_group *out);
int64_t heapx_pins_slice(struct pins *pins, struct block_source *blocks, double seconds);
int64_t heapx_pins_end(struct pins *pins, uint64_t *returned, uint64_t *used);

/* ---- slots.py ---- */

struct block_source *heapx_pool_blocks(const struct source *memory, int little_endian, uint64_t bytes, const uint64_t *runs,
    uint64_t count);
int64_t heapx_pool_sums(struct block_source *self, struct pool_sums *out, double seconds);

/* ---- signatures.py ---- */

void heapx_referrals_free(struct referrals *work);
struct referrals *heapx_referrals_new(struct graph *graph, struct signer *signer, const uint8_t *known, uint32_t known_count,
    unsigned most_depth, uint32_t roots_from, int has_classes, uint32_t tree_label, int containers, const uint64_t *layouts,
    uint64_t layout_count, uint64_t least_same, const struct containers *linked);
int64_t heapx_referrals_slice(struct referrals *work, double seconds);
uint64_t heapx_signer_vtables(const struct signer *signer, uint64_t *out, uint64_t room);
int heapx_signer_rust(struct signer *signer, const uint64_t *ranges, uint64_t count, const uint8_t *foreign);
void heapx_signer_free(struct signer *signer);
struct signer *heapx_signer_new(unsigned word, int little_endian, int keeps_labels, const struct condition *conditions,
    const struct row_numbers *rows, uint64_t row_count, const uint64_t *sets, uint64_t set_count, const uint64_t *numbers);
int64_t heapx_signer_slice(struct signer *signer, const struct source *memory, struct block_source *blocks, uint8_t *buffer,
    double seconds);
uint64_t heapx_signer_found(const struct signer *signer, uint64_t *out, uint64_t room);
void heapx_signer_rest(const struct signer *signer, uint64_t *out);
void heapx_signer_keep_contents(struct signer *signer, int beyond);
uint64_t heapx_signer_copied(const struct signer *signer, uint64_t *out, uint64_t room);
uint32_t *heapx_signer_labels(struct signer *signer, uint64_t *count);
void heapx_signer_within(const struct signer *signer, const struct graph *graph, const uint64_t *ranges, uint64_t count, uint64_t *out);

/* ---- slots.py ---- */

struct block_source *heapx_slot_blocks(const struct source *memory, const struct slot_run *runs, uint64_t run_count, const uint64_t *frees,
    const uint8_t *free_kinds, uint64_t free_count, const uint8_t *classes, const struct block_wanted *wanted);
int heapx_slots_fit(const struct slot_run *runs, uint64_t run_count, uint64_t labels);
struct slot_tally_job *heapx_slot_tally_new(const struct source *memory, const struct slot_run *runs, uint64_t run_count,
    const uint64_t *frees, uint64_t free_count, uint64_t labels);
int64_t heapx_slot_tally_slice(struct slot_tally_job *job, double seconds);
void heapx_slot_tally_result(const struct slot_tally_job *job, struct slot_tally *tallies, struct slot_problem *problems,
    struct slot_sums *sums);
void heapx_slot_tally_free(struct slot_tally_job *job);

/* ---- graph_queries.py ---- */

struct stacks *heapx_stacks_new(const struct graph *graph, const uint32_t *owners, const uint32_t *labels, const uint32_t *label_frames,
    const uint32_t *root_frames, const uint32_t *begins, uint32_t leaked, uint32_t shared, uint32_t most_frames, uint32_t nodes,
    uint32_t *at);
uint64_t heapx_stacks_take(const struct stacks *stacks, uint32_t *above, uint32_t *frames, uint64_t *blocks, uint64_t *bytes);
void heapx_stacks_free(struct stacks *stacks);

#pragma GCC visibility pop
