/* How much of blocks is content, where a length says so: in the block itself, or beside the pointer to it. */
#include "graph.h"

#include <stdlib.h>

#define NODES_AT_ONCE 4096u
#define WINDOW_BYTES (64u << 10)
#define NO_RULE UINT32_MAX
#define NEAR_BLOCKS 64u     /* they are passed one by one in less time than one is looked up */

struct fill {
    const struct signer *signer;
    const struct graph *graph;
    const struct fill_rule *rules;      /* the caller's, sorted by label */
    const uint64_t *bases;              /* the caller's: where each node behind the blocks begins; 0: not known */
    uint64_t rule_count, next;
    int has_classes;
    uint32_t *first;                    /* by label: its first rule */
    uint64_t *told;                     /* one bit a block: it counts */
    uint64_t *out;                      /* by label: bytes of content, and of the blocks that they are told of */
    struct index_cursor cursor;
    uint32_t passed;                    /* so many blocks; the last of them begins at `address` */
    uint64_t address;
    struct window window;
    uint8_t bytes[WINDOW_BYTES];
};

void heapx_fill_free(struct fill *fill)
{
    if (!fill)
        return;
    free(fill->first);
    free(fill->told);
    free(fill->out);
    free(fill);
}

/* After refer(). NULL: no memory. */
struct fill *heapx_fill_new(const struct signer *signer, const struct graph *graph, const struct source *memory,
    const struct fill_rule *rules, uint64_t rule_count, const uint64_t *bases, int has_classes)
{
    struct fill *fill = calloc(1, sizeof *fill);
    if (!fill)
        return NULL;
    fill->signer = signer;
    fill->graph = graph;
    fill->rules = rules;
    fill->rule_count = rule_count;
    fill->bases = bases;
    fill->has_classes = has_classes;
    fill->first = malloc(((size_t) signer->key_count + 1) * sizeof *fill->first);
    fill->told = calloc((size_t) graph->index.blocks / 64 + 1, sizeof *fill->told);
    fill->out = calloc(2 * ((size_t) signer->key_count + 1), sizeof *fill->out);
    if (!fill->first || !fill->told || !fill->out) {
        heapx_fill_free(fill);
        return NULL;
    }
    memset(fill->first, 0xff, ((size_t) signer->key_count + 1) * sizeof *fill->first);
    for (uint64_t i = rule_count; i--;)
        if (rules[i].label <= signer->key_count)
            fill->first[rules[i].label] = (uint32_t) i;
    window_open(&fill->window, memory, fill->bytes, sizeof fill->bytes, 0, UINT64_MAX);
    return fill;
}

static void tell(struct fill *fill, uint32_t id, uint64_t bytes)
{
    const uint64_t usable = index_size(&fill->graph->index, id);
    const uint32_t label = fill->signer->labels[id];
    if (label == UNSIGNED || bytes > usable || has_bit(fill->told, id))
        return;
    set_bit(fill->told, id);
    fill->out[2 * label] += bytes;
    fill->out[2 * label + 1] += usable;
}

/* `bytes` (1, 2, 4 or 8) at an address; 0 where they cannot be read. */
static uint64_t number_at(struct fill *fill, uint64_t address, uint64_t bytes)
{
    uint8_t swapped[8] = {0};
    uint64_t value = 0;
    const uint8_t *at = bytes <= 8 ? window_at(&fill->window, address, bytes) : NULL;
    if (!at)
        return 0;
    for (uint64_t i = 0; i < bytes; i++)
        swapped[i] = fill->graph->swap ? at[bytes - 1 - i] : at[i];
    memcpy(&value, swapped, sizeof value);
    return value;
}

/* What the rule says of the block, or of what a word of it leads to; UINT64_MAX: nothing. */
static uint64_t content_by(struct fill *fill, const struct fill_rule *rule, uint64_t address)
{
    if (rule->test_mask && (number_at(fill, address + rule->test_at, 4) & rule->test_mask) != rule->test_value)
        return UINT64_MAX;
    const uint64_t length = number_at(fill, address + rule->length_at, rule->length_bytes);
    return length > MOST_CONTAINER_BYTES ? UINT64_MAX : rule->head_bytes + length * rule->unit_bytes;
}

/* {block, length, capacity} or {begin, end, end of the capacity}, as signer_look() takes them. */
static void tell_container(struct fill *fill, uint32_t target, uint64_t kind, uint64_t at)
{
    const unsigned word = fill->graph->word;
    const uint64_t pointer = number_at(fill, at, word), second = number_at(fill, at + word, word);
    const uint64_t third = number_at(fill, at + 2 * (uint64_t) word, word);
    const uint64_t usable = index_size(&fill->graph->index, target), capacity = kind == STRING ? third + 1 : third - pointer;
    const uint64_t bytes = kind == STRING ? second + 1 : second - pointer;
    if (pointer == index_address(&fill->graph->index, target) && bytes <= capacity && fits_block(usable, capacity, fill->has_classes))
        tell(fill, target, bytes);
}

/* Looked up only where it is needed: that takes longer than to pass an edge. Nodes come in order. */
static uint64_t address_of(struct fill *fill, uint32_t node)
{
    const struct index *index = &fill->graph->index;
    if (node >= index->blocks)
        return fill->bases[node - index->blocks];
    if (node + 1 != fill->passed && node - fill->passed >= NEAR_BLOCKS) {
        index_seek(index, &fill->cursor, node);
        fill->passed = node;
    }
    for (; fill->passed <= node; fill->passed++)
        fill->address = index_next(index, &fill->cursor);
    return fill->address;
}

static void look_at_edges(struct fill *fill, uint32_t node, uint32_t first)
{
    const struct graph *graph = fill->graph;
    const struct signer *signer = fill->signer;
    uint64_t address = 0;
    for (uint64_t edge = graph->offsets[node]; edge < graph->offsets[node + 1]; edge++) {
        const uint32_t target = EDGE_ID(graph->to[edge]), rule = EDGE_RULE(graph->to[edge]);
        const uint64_t slot = slot_of(graph, edge);
        if ((rule != RULE_START && rule != RULE_END) || target >= graph->index.blocks || slot == UINT32_MAX || has_bit(fill->told, target))
            continue;
        const uint32_t label = signer->labels[target];
        const uint64_t kind = label == UNSIGNED ? 0 : signer->keys[label - 1].row - signer->row_count;
        const int is_container = label != UNSIGNED && (kind == STRING || kind == VECTOR);
        if ((!is_container && first == NO_RULE) || (!address && !(address = address_of(fill, node))))
            continue;
        if (is_container)
            tell_container(fill, target, kind, address + slot * graph->word);
        for (uint64_t i = first; i < fill->rule_count && fill->rules[i].label == fill->rules[first].label; i++) {
            const uint64_t bytes = fill->rules[i].pointer == slot * graph->word ? content_by(fill, &fill->rules[i], address) : UINT64_MAX;
            if (bytes != UINT64_MAX)
                tell(fill, target, bytes);
        }
    }
}

static void look_at_node(struct fill *fill, uint32_t node)
{
    const uint32_t label = node < fill->graph->index.blocks ? fill->signer->labels[node] : UNSIGNED;
    const uint32_t first = label == UNSIGNED ? NO_RULE : fill->first[label];
    const uint64_t address = first == NO_RULE ? 0 : address_of(fill, node);
    for (uint64_t i = first; i < fill->rule_count && fill->rules[i].label == label; i++) {
        const uint64_t bytes = fill->rules[i].pointer == UINT64_MAX ? content_by(fill, &fill->rules[i], address) : UINT64_MAX;
        if (bytes != UINT64_MAX)
            tell(fill, node, bytes);
    }
    look_at_edges(fill, node, first);
}

int64_t heapx_fill_slice(struct fill *fill, double seconds)
{
    const double deadline = clock_now() + seconds;
    while (fill->next < fill->graph->nodes) {
        look_at_node(fill, (uint32_t) fill->next);
        if (fill->window.interrupted) {
            fill->window.interrupted = 0;
            return INTERRUPTED;
        }
        if (!(++fill->next % NODES_AT_ONCE) && clock_now() > deadline)
            return 1;
    }
    return 0;
}

/* `out`: by label from 0 on bytes of content, and usable bytes of the blocks whose content that is. */
void heapx_fill_found(const struct fill *fill, uint64_t *out)
{
    memcpy(out, fill->out, 2 * ((size_t) fill->signer->key_count + 1) * sizeof *out);
}
