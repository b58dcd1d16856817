/* See signatures.h. The first row that a block meets is its signature; rows with a key have one for each value of it. */
#include "signatures.h"

#include "../common/heapx.h"

#include <stdlib.h>

static uint64_t mix(uint64_t number)
{
    number = (number ^ number >> 32) * 0x9e3779b97f4a7c15ull;
    return number ^ number >> 29;
}

static int set_fill(struct number_set *set, const uint64_t *numbers, uint64_t count, int are_ranges)
{
    set->count = count;
    set->low = UINT64_MAX;
    for (uint64_t i = 0; i < count * (are_ranges ? 2 : 1); i++) {
        set->low = numbers[i] < set->low ? numbers[i] : set->low;
        set->high = numbers[i] > set->high ? numbers[i] : set->high;
    }
    for (set->places = are_ranges ? 0 : 16; set->places && set->places < 2 * count;)
        set->places *= 2;
    set->numbers = calloc(set->places ? set->places : 2 * count + 1, sizeof *set->numbers);
    if (!set->numbers)
        return 0;
    if (are_ranges && count)
        memcpy(set->numbers, numbers, 2 * count * sizeof *numbers);
    for (uint64_t i = 0; set->places && i < count; i++) {
        uint64_t place = mix(numbers[i]);
        while (set->numbers[place & (set->places - 1)] && set->numbers[place & (set->places - 1)] != numbers[i])
            place++;
        set->numbers[place & (set->places - 1)] = numbers[i];
    }
    return 1;
}

static int set_has(const struct number_set *set, uint64_t number)
{
    if (number < set->low || number > set->high || !number)
        return 0;
    if (set->places) {
        for (uint64_t place = mix(number); set->numbers[place & (set->places - 1)]; place++)
            if (set->numbers[place & (set->places - 1)] == number)
                return 1;
        return 0;
    }
    return range_at(set->numbers, set->count, number) != 0;
}

static uint64_t load(const struct signer *signer, const uint8_t *from, uint64_t width)
{
    uint64_t value = 0;
    const int is_little = is_swapped(1) == signer->swap;
    for (uint64_t i = 0; i < width; i++)
        value |= (uint64_t) from[i] << 8 * (is_little ? i : width - 1 - i);
    return value;
}

static inline uint64_t load_fast(const struct signer *signer, const uint8_t *from, uint64_t width)
{
    if (width == 8 || width == 4)
        return load_word(from, (unsigned) width, signer->swap);
    return width == 1 ? *from : load(signer, from, width);
}

static inline int meets(const struct signer *signer, const struct condition *condition, uint64_t address, uint64_t usable,
                        const uint8_t *bytes, uint64_t length)
{
    if (condition->offset + condition->width > length)
        return 0;
    const uint64_t value = load_fast(signer, bytes + condition->offset, condition->width) & condition->mask;
    if (condition->op == IN_SET || condition->op == IN_RANGES)
        return set_has(&signer->sets[condition->operand], value);
    uint64_t with = condition->operand;
    if (condition->base == NUMBER)
        ;
    else if (condition->base == USABLE)
        with += usable;
    else if (condition->base == ADDRESS)
        with += address;
    else if (condition->base == FIELD) {
        if (condition->other + condition->width > length)
            return 0;
        with += load_fast(signer, bytes + condition->other, condition->width) & condition->mask;
    }
    switch (condition->op) {
    case EQUAL:
        return value == with;
    case NOT_EQUAL:
        return value != with;
    case AT_MOST:
        return value <= with;
    default:
        return value >= with;
    }
}

static int grow_places(struct signer *signer)
{
    const uint64_t places = signer->place_count ? 2 * signer->place_count : 1024;
    uint32_t *table = calloc((size_t) places, sizeof *table);
    struct signed_key *keys = realloc(signer->keys, (size_t) (places / 2) * sizeof *keys);
    signer->keys = keys ? keys : signer->keys;
    if (!table || !keys) {
        free(table);
        return 0;
    }
    for (uint64_t i = 0; i < signer->key_count; i++) {
        uint64_t place = mix(keys[i].key ^ keys[i].row << 56);
        while (table[place & (places - 1)])
            place++;
        table[place & (places - 1)] = (uint32_t) i + 1;
    }
    free(signer->places);
    signer->places = table;
    signer->place_count = places;
    return 1;
}

static uint32_t key_of(struct signer *signer, uint64_t row, uint64_t key)
{
    if (2 * (signer->key_count + 1) > signer->place_count && !grow_places(signer))
        return 0;
    for (int once = 0;; once = 1) {
        uint64_t place = mix(key ^ row << 56);
        for (uint32_t number; (number = signer->places[place & (signer->place_count - 1)]); place++)
            if (signer->keys[number - 1].row == row && signer->keys[number - 1].key == key)
                return number;
        if (once || signer->key_count < MOST_KEYS) {
            signer->keys[signer->key_count] = (struct signed_key) {.row = row, .key = key};
            return signer->places[place & (signer->place_count - 1)] = (uint32_t) ++signer->key_count;
        }
        key = OTHERS;
    }
}

static inline uint32_t last_key_of(struct signer *signer, uint64_t row, uint64_t key)
{
    struct last_key *last = &signer->last[row];
    if (!last->label || last->key != key) {
        last->label = key_of(signer, row, key);
        last->key = key;
    }
    return last->label;
}

uint32_t signer_key(struct signer *signer, uint64_t row, uint64_t key)
{
    return last_key_of(signer, row, key);
}

/* 0, or NO_MEMORY. */
static inline int keep_label(struct signer *signer, uint32_t label)
{
    if (!signer->keeps_labels)
        return 0;
    if (!has_dense_room(&signer->labels, signer->blocks, &signer->room, sizeof label))
        return NO_MEMORY;
    signer->labels[signer->blocks++] = label;
    return 0;
}

#define LEAST_TEXT 8u
#define MOST_TEXT 64u                   /* bytes of a block by which it is told as text */

#define EACH(byte) (UINT64_C(0x0101010101010101) * (byte))

/* The upper bit of each byte that is neither printable nor one of 9 to 13. */
static uint64_t no_text(uint64_t bytes)
{
    const uint64_t low = bytes & EACH(0x7f);
    const uint64_t printable = (low + EACH(0x60)) & ~(low + EACH(1)), space = (low + EACH(0x77)) & ~(low + EACH(0x72));
    return (~(printable | space) | bytes) & EACH(0x80);
}

/* The place in memory of the first byte that has a bit set. */
static unsigned first_byte(uint64_t bytes)
{
    return (unsigned) (is_swapped(1) ? __builtin_clzll(bytes) : __builtin_ctzll(bytes)) / 8;
}

static int is_text(uint8_t byte)
{
    return (byte >= 0x20 && byte < 0x7f) || (byte >= 9 && byte <= 13);
}

static int are_zeros(const uint8_t *bytes, uint64_t length)
{
    uint64_t at = 0, eight = 0;
    for (; at + 8 <= length && !eight; at += 8)
        memcpy(&eight, bytes + at, 8);
    while (!eight && at < length && !bytes[at])
        at++;
    return !eight && at == length && length;
}

#define LEAST_NUMBERS 8u
#define LEAST_EXPONENT (1023 - 64)
#define EXPONENTS (2 * 64 + 1)

/* Almost all words are numbers of type double, as far from 1 as numbers of programs are; words of 0 tell nothing. */
static int are_doubles(const struct signer *signer, const uint8_t *bytes, uint64_t length)
{
    unsigned others = 0, numbers = 0;
    const unsigned most = (unsigned) (length / 8 / 10);
    for (uint64_t at = 0; at + 8 <= length && others <= most; at += 8) {
        const uint64_t word = load_word(bytes + at, 8, signer->swap);
        const unsigned is_number = (unsigned) (word >> 52 & 0x7ff) - LEAST_EXPONENT < EXPONENTS;
        numbers += is_number;
        others += !is_number && word;
    }
    return numbers >= LEAST_NUMBERS && 10 * others <= numbers + others;
}

/* A string of some length begins here, or only zeros are here, or numbers. */
static int content_of(const struct signer *signer, const uint8_t *bytes, uint64_t usable, uint64_t length)
{
    uint64_t count = 0, eight = 0;
    const uint64_t most = length < MOST_TEXT ? length : MOST_TEXT;
    int has_ended = 0;
    while (count + 8 <= most && !has_ended) {
        memcpy(&eight, bytes + count, 8);
        const uint64_t other = no_text(eight);
        has_ended = other != 0;
        count += other ? first_byte(other) : 8;
    }
    while (!has_ended && count < most && is_text(bytes[count]))
        count++;
    if (count >= LEAST_TEXT && (count == most || !bytes[count]))
        return BEGINS_TEXT;
    if (!count && length == usable && are_zeros(bytes, length))
        return ONLY_ZEROS;
    return are_doubles(signer, bytes, length) ? NUMBERS : -1;
}

static int meets_row(const struct signer *signer, const struct row_numbers *row, uint64_t address, uint64_t usable,
                     const uint8_t *bytes, uint64_t length)
{
    if (usable < row->least_usable || usable > row->most_usable || row->key_offset + row->key_width > length)
        return 0;
    for (uint64_t at = row->first; at < row->end; at++)
        if (!meets(signer, &signer->conditions[at], address, usable, bytes, length))
            return 0;
    return 1;
}

/* The number of the first row that the block meets; row_count: none. */
static uint64_t first_row(const struct signer *signer, uint64_t address, uint64_t usable, const uint8_t *bytes, uint64_t length)
{
    const struct row_filter *filter = signer->filters;
    for (uint64_t first = 0; first < signer->row_count; first += FILTER_ROWS, filter++)
        for (uint64_t rows = filter_rows(filter, usable, bytes, length); rows; rows &= rows - 1) {
            const uint64_t number = first + (unsigned) __builtin_ctzll(rows);
            if (meets_row(signer, &signer->rows[number], address, usable, bytes, length))
                return number;
        }
    return signer->row_count;
}

int signer_sign(struct signer *signer, uint64_t address, uint64_t usable, const uint8_t *bytes, uint64_t length)
{
    uint64_t number = first_row(signer, address, usable, bytes, length), key = 0;
    if (number < signer->row_count) {
        const struct row_numbers *row = &signer->rows[number];
        key = row->key_width ? load_fast(signer, bytes + row->key_offset, row->key_width) & row->key_mask : 0;
        const int content = row->weak && signer->keeps_contents ? content_of(signer, bytes, usable, length) : -1;
        if (content >= 0 && !contents_keep(&signer->weak, (uint32_t) signer->blocks, (uint64_t) content))
            return NO_MEMORY;
        if (row->sized)
            key = (key & ((UINT64_C(1) << SIZED_BITS) - 1)) | (usable / 8 < MOST_SIZED ? usable / 8 : MOST_SIZED) << SIZED_BITS;
    } else {
        const int content = content_of(signer, bytes, usable, length);
        if (content < 0) {
            count_block(&signer->rest, address, usable);
            return keep_label(signer, UNSIGNED);
        }
        number += (unsigned) content;
    }
    const uint32_t label = last_key_of(signer, number, key);
    if (!label)
        return NO_MEMORY;
    signer_count(signer, label, address, usable);
    return keep_label(signer, label);
}

void signer_hint(struct signer *signer, uint64_t address, uint64_t bytes, unsigned kind)
{
    if (has_dense_room(&signer->hints, signer->hint_count, &signer->hint_room, sizeof *signer->hints))
        signer->hints[signer->hint_count++] = (struct hint) {.address = address, .bytes = bytes, .kind = kind};
    else
        signer->lost_hints = 1;
}

#define LEAST_LOAD 0x3d4ccccdu          /* 0.05f and 100.0f: what a program may choose as the load of a table */
#define MOST_LOAD 0x42c80000u
#define LEAST_BUFFER 256u               /* of a deque: 512 bytes less what makes no whole element, or one element */

static int is_load(uint64_t bits)
{
    return bits >= LEAST_LOAD && bits <= MOST_LOAD;
}

/* libstdc++: hashtable.h, _Hashtable: buckets, their number, first node, number of nodes, load, number of nodes up to which it does not
   grow; stl_deque.h, _Deque_impl_data: map, its places, then twice current, first, last, place in the map. */
void signer_look_far(struct signer *signer, const uint8_t *words, uint64_t count)
{
    uint64_t at[10] = {0};
    for (unsigned i = 0; i < 10 && i < count; i++)
        at[i] = load_word(words + (uint64_t) i * signer->word, signer->word, signer->swap);
    if (count >= 6 && at[3] && at[3] <= at[5] && at[5] < UINT32_MAX && (is_load(at[4] & UINT32_MAX) || is_load(at[4] >> 32))) {
        signer_hint(signer, at[0], at[1] * signer->word, BUCKETS);
        signer_hint(signer, at[2], at[3], CHAIN);
        return;
    }
    const uint64_t room = at[1] < 8 ? at[1] : (at[1] + 1) / 8 * 7;
    if (at[1] >= 3 && at[2] <= at[1]) {     /* hashbrown: control bytes, mask, free places, items */
        if (!(at[0] & 15) && at[3] && at[3] <= room && at[2] <= room - at[3])
            signer_hint(signer, at[0], at[1] + 17, HASHES);
        return;
    }
    const uint64_t buffer = at[4] - at[3], first = at[5] - at[0], last = at[9] - at[0];
    if (count < 10 || at[8] - at[7] != buffer || buffer < LEAST_BUFFER || buffer > UINT32_MAX || at[2] - at[3] > buffer
        || at[6] - at[7] > buffer || first > last || last >= at[1] * signer->word || (first | last) % signer->word)
        return;
    signer_hint(signer, at[0], at[1] * signer->word, DEQUE);
    signer_hint(signer, (first / signer->word) << 32 | last / signer->word, buffer, BUFFERS);
}

static void hint_vec(struct signer *signer, uint64_t pointer, const uint64_t *capacity_length, int votes, unsigned order, uint64_t place)
{
    const uint64_t capacity = capacity_length[0], length = capacity_length[1];
    if (!capacity || length > capacity || capacity > UINT32_MAX)
        return;
    const uint64_t hash = (mix(place) << 1 & ((1u << PLACE_BITS) - 1)) | (place >> 62 == 1);
    const uint64_t rest = (uint64_t) (votes && length == capacity) | order << 1 | hash << 2;
    signer_hint(signer, pointer, capacity | rest << CAPACITY_BITS, VECS);
}

void signer_look_rust(struct signer *signer, const uint8_t *at, uint64_t before, uint64_t words, uint64_t place)
{
    const int in_block = place < OF_ROOT;
    const uint64_t pointer = load_word(at, signer->word, signer->swap);
    if (words < 2 || pointer & 7)
        return;
    const uint64_t next = load_word(at + signer->word, signer->word, signer->swap);
    if (!(next & 7) && set_has(&signer->constants, next)) {
        signer_hint(signer, pointer, next, DYNS);
        return;
    }
    const uint32_t label = in_block && signer->blocks ? signer->labels[signer->blocks - 1] : UNSIGNED;
    if (label != UNSIGNED && signer->foreign[signer->keys[label - 1].row])
        return;
    const uint64_t around[] = {before ? load_word(at - signer->word, signer->word, signer->swap) : 0, next};
    const uint64_t behind[] = {next, words > 2 ? load_word(at + 2 * signer->word, signer->word, signer->swap) : UINT64_MAX};
    const int is_clear = around[0] != next || behind[1] != next;    /* else one of them is a neighbour's, in an array of equal ones */
    hint_vec(signer, pointer, around, is_clear, CAPACITY_POINTER_LENGTH, place);
    hint_vec(signer, pointer, behind, is_clear, POINTER_CAPACITY_LENGTH, place);
}

/* The program is Rust: (begin, end) of where its vtables may lie, sorted; `foreign`: by row, 1: another language's. 0: no memory. */
int heapx_signer_rust(struct signer *signer, const uint64_t *ranges, uint64_t count, const uint8_t *foreign)
{
    free(signer->constants.numbers);
    free(signer->foreign);
    signer->foreign = calloc((size_t) signer->row_count + ROWS_BEYOND, 1);
    if (!signer->foreign)
        return 0;
    memcpy(signer->foreign, foreign, (size_t) signer->row_count);
    return set_fill(&signer->constants, ranges, count, 1);
}

void heapx_signer_free(struct signer *signer)
{
    if (!signer)
        return;
    free(signer->constants.numbers);
    free(signer->foreign);
    for (uint64_t i = 0; i < signer->set_count; i++)
        free(signer->sets[i].numbers);
    free(signer->sets);
    free(signer->keys);
    free(signer->places);
    lazy_free(signer->labels, (size_t) signer->room * sizeof *signer->labels);
    lazy_free(signer->hints, (size_t) signer->hint_room * sizeof *signer->hints);
    contents_free(&signer->contents);
    contents_free(&signer->weak);
    free(signer->filters);
    free(signer->last);
    free(signer);
}

/* `sets`: of each where its numbers begin in `numbers`, how many, and whether they are begins and ends of ranges; `numbers` need not be
   kept. Conditions and rows stay the caller's. NULL: no memory. */
struct signer *heapx_signer_new(unsigned word, int little_endian, int keeps_labels, const struct condition *conditions,
                                const struct row_numbers *rows, uint64_t row_count, const uint64_t *sets, uint64_t set_count,
                                const uint64_t *numbers)
{
    struct signer *signer = calloc(1, sizeof *signer);
    if (!signer)
        return NULL;
    *signer = (struct signer) {.word = word, .swap = is_swapped((uint64_t) little_endian), .keeps_labels = keeps_labels,
                               .conditions = conditions, .rows = rows, .row_count = row_count};
    signer->sets = calloc((size_t) set_count + 1, sizeof *signer->sets);
    for (uint64_t i = 0; signer->sets && i < set_count; i++) {
        signer->set_count++;
        if (!set_fill(&signer->sets[i], numbers + sets[3 * i], sets[3 * i + 1], (int) sets[3 * i + 2])) {
            heapx_signer_free(signer);
            return NULL;
        }
    }
    const struct asked_rows asked = {signer->conditions, signer->rows, row_count, signer->sets, signer->swap};
    signer->filters = signer->sets ? row_filters_new(&asked) : NULL;
    signer->last = calloc((size_t) row_count + ROWS_BEYOND, sizeof *signer->last);
    if (!signer->filters || !signer->last) {
        heapx_signer_free(signer);
        return NULL;
    }
    return signer;
}

/* ---- parts ---- */

struct signer *signer_open_part(const struct signer *signer)
{
    struct signer *part = malloc(sizeof *part);
    if (!part)
        return NULL;
    *part = (struct signer) {
        .word = signer->word, .swap = signer->swap, .conditions = signer->conditions, .rows = signer->rows,
        .row_count = signer->row_count, .filters = signer->filters, .sets = signer->sets, .keeps_labels = signer->keeps_labels,
        .keeps_contents = signer->keeps_contents, .last = calloc((size_t) signer->row_count + ROWS_BEYOND, sizeof *part->last),
    };
    if (part->last)
        return part;
    free(part);
    return NULL;
}

void signer_close_part(struct signer *part)
{
    if (part) {
        part->filters = NULL;
        part->sets = NULL;
    }
    heapx_signer_free(part);
}

int signer_may_have_parts(const struct signer *signer)
{
    return !signer->blocks && !signer->key_count && !signer->hint_count && !signer->rest.blocks && !signer->constants.count;
}

static void add_key(struct signed_key *to, const struct signed_key *from)
{
    to->sample = to->blocks ? to->sample : from->sample;
    to->least = !to->blocks || from->least < to->least ? from->least : to->least;
    to->most = from->most > to->most ? from->most : to->most;
    to->blocks += from->blocks;
    to->bytes += from->bytes;
}

/* The places of the part, which needs them no more, become the labels of its keys in the whole. */
int signer_join_keys(struct signer *signer, struct signer *part)
{
    for (uint64_t i = 0; i < part->key_count; i++) {
        const uint32_t label = key_of(signer, part->keys[i].row, part->keys[i].key);
        if (!label || signer->key_count == MOST_KEYS)
            return 0;
        add_key(&signer->keys[label - 1], &part->keys[i]);
        part->places[i] = label;
    }
    if (part->rest.blocks)
        add_key(&signer->rest, &part->rest);
    return 1;
}

int signer_join(struct signer *signer, struct signer *part)
{
    const uint64_t first = signer->blocks, hints = signer->hint_count + part->hint_count;
    for (uint64_t i = 0; i < part->blocks; i++)
        if (keep_label(signer, part->labels[i] == UNSIGNED ? UNSIGNED : part->places[part->labels[i] - 1]))
            return 0;
    if (hints > signer->hint_room) {
        struct hint *more = dense_grow(signer->hints, (size_t) signer->hint_room * sizeof *more, (size_t) hints * sizeof *more);
        signer->hints = more ? more : signer->hints;
        signer->hint_room = more ? hints : signer->hint_room;
        signer->lost_hints |= !more;
    }
    if (part->hint_count && hints <= signer->hint_room) {
        memcpy(signer->hints + signer->hint_count, part->hints, (size_t) part->hint_count * sizeof *part->hints);
        signer->hint_count = hints;
    }
    signer->lost_hints |= part->lost_hints;
    return contents_join(&signer->contents, &part->contents, first) && contents_join(&signer->weak, &part->weak, first);
}

void signer_clear(struct signer *signer)
{
    signer->key_count = 0;
    if (signer->places)
        memset(signer->places, 0, (size_t) signer->place_count * sizeof *signer->places);
    memset(signer->last, 0, ((size_t) signer->row_count + ROWS_BEYOND) * sizeof *signer->last);
    memset(&signer->rest, 0, sizeof signer->rest);
}

/* ---- blocks that are signed alone ---- */

#define MOST_BETWEEN 64u                /* bytes between blocks side by side */

#define MOST_ALONG 4096u                /* of a larger block only the begin is read, and what follows it by another read */

/* Where the blocks from row `i` on end that stand side by side: beyond may be anything, a file of which no page is in memory for one. */
static uint64_t end_of_rows(const struct block_rows *rows, uint64_t i)
{
    uint64_t end = rows->addresses[i];
    for (; i < rows->count && rows->addresses[i] - end <= MOST_BETWEEN && rows->classes[i] != CLASS_RETURNED; i++) {
        if (rows->usable[i] > MOST_ALONG)
            return rows->classes[i] == CLASS_USED ? rows->addresses[i] + SIGNED_BYTES : end;
        end = rows->addresses[i] + rows->usable[i];
    }
    return end;
}

/* Signs used blocks of a stream for at most about `seconds`. `buffer`: 128 KiB. 1: there is more; 0: all are signed; INTERRUPTED;
   NO_MEMORY. */
int64_t heapx_signer_slice(struct signer *signer, const struct source *memory, struct block_source *blocks, uint8_t *buffer,
                           double seconds)
{
    struct row_buffer held;
    uint64_t begin = 0, length = 0;
    const double deadline = clock_now() + seconds;
    blocks->keeps = blocks->lend != NULL;
    do {
        rows_open(&held);
        int failed = blocks->next(blocks, deadline - clock_now(), &held.rows);
        for (uint64_t i = 0; !failed && i < held.rows.count; i++) {
            if (held.classes[i] != CLASS_USED)
                continue;
            const uint64_t address = held.addresses[i], usable = held.usable[i], want = usable < SIGNED_BYTES ? usable : SIGNED_BYTES;
            uint64_t lent = 0;
            const uint8_t *at_hand = blocks->lend ? blocks->lend(blocks, address, &lent) : NULL;
            if (at_hand && lent >= want) {
                failed = signer_sign(signer, address, usable, at_hand, want);
                continue;
            }
            if (address - begin >= length || length - (address - begin) < want) {
                const uint64_t last = end_of_rows(&held.rows, i) - address;
                const uint64_t size = source_ahead(memory, address, want, last < READ_BYTES ? last : READ_BYTES);
                const int64_t got = source_read(memory, address, buffer, size);
                if (got < 0)
                    return INTERRUPTED;
                begin = address;
                length = (uint64_t) got;
            }
            const uint64_t away = address - begin, left = away < length ? length - away : 0;
            failed = signer_sign(signer, address, usable, buffer + away, left < want ? left : want);
        }
        if (failed)
            return failed;
        if (blocks->state(blocks).ended)
            return 0;
    } while (clock_now() < deadline);
    return 1;
}

static void take_back(struct signer *signer, uint32_t label, uint64_t usable)
{
    if (label == UNSIGNED)
        return;
    signer->keys[label - 1].blocks--;
    signer->keys[label - 1].bytes -= usable;
}

int signer_relabel(struct signer *signer, const struct index *index, uint32_t id, uint32_t label)
{
    const uint64_t usable = index_size(index, id);
    if (!label)
        return 0;
    take_back(signer, signer->labels[id], usable);
    signer->labels[id] = label;
    const uint64_t address = signer->keys[label - 1].blocks ? 0 : index_address(index, id);     /* looked up: only a sample's */
    signer_count(signer, label, address, usable);
    return 1;
}

static void write_key(const struct signed_key *key, uint64_t *out)
{
    const uint64_t numbers[] = {key->row, key->key, key->blocks, key->bytes, key->sample, key->least, key->most};
    memcpy(out, numbers, sizeof numbers);
}

/* `out`: row, key, blocks, bytes, address of the first, least and most usable bytes, for each label from 1 on, at most `room`. Returns how
   many there are. */
uint64_t heapx_signer_found(const struct signer *signer, uint64_t *out, uint64_t room)
{
    for (uint64_t i = 0; i < signer->key_count && i < room; i++)
        write_key(&signer->keys[i], out + 7 * i);
    return signer->key_count;
}

/* The same seven numbers of the blocks that got no label when they were signed. */
void heapx_signer_rest(const struct signer *signer, uint64_t *out)
{
    write_key(&signer->rest, out);
}

/* From now on what a graph reads of each block is kept as a number, so that equal ones can be told; `beyond`: also when names are given. */
void heapx_signer_keep_contents(struct signer *signer, int beyond)
{
    signer->keeps_contents = signer->keeps_labels;
    signer->needs_contents |= beyond;
}

/* After names are given: `out` gets how many contents several blocks have, the blocks, their bytes, and bytes to spare; then of each
   content with many bytes the first block's id and how many blocks, for at most `room` of them. Returns how many there are. */
uint64_t heapx_signer_copied(const struct signer *signer, uint64_t *out, uint64_t room)
{
    const struct copied *copied = &signer->copied;
    const uint64_t numbers[] = {copied->contents, copied->blocks, copied->bytes, copied->spare};
    memcpy(out, numbers, sizeof numbers);
    memcpy(out + 4, copied->same, (size_t) (copied->count < room ? copied->count : room) * sizeof *copied->same);
    return copied->count;
}

/* Where the labels of all blocks stand, by id. */
uint32_t *heapx_signer_labels(struct signer *signer, uint64_t *count)
{
    *count = signer->blocks;
    return signer->labels;
}

/* ---- vtables of Rust ---- */

static int by_number(const void *one, const void *other)
{
    const uint64_t a = *(const uint64_t *) one, b = *(const uint64_t *) other;
    return (a > b) - (a < b);
}

/* `out`: what stands beside pointers and may be a vtable, each once, at most `room`. Returns how many there are; UINT64_MAX: no memory. */
uint64_t heapx_signer_vtables(const struct signer *signer, uint64_t *out, uint64_t room)
{
    uint64_t count = 0, different = 0, before = 0;
    for (uint64_t i = 0; i < signer->hint_count; i++) {
        const struct hint *hint = &signer->hints[i];
        count += hint->kind == DYNS && hint->bytes != before;
        before = hint->kind == DYNS ? hint->bytes : before;
    }
    uint64_t *found = malloc((size_t) (count + 1) * sizeof *found);
    if (!found)
        return UINT64_MAX;
    count = before = 0;
    for (uint64_t i = 0; i < signer->hint_count; i++) {
        const struct hint *hint = &signer->hints[i];
        if (hint->kind == DYNS && hint->bytes != before)
            found[count++] = before = hint->bytes;
    }
    qsort(found, (size_t) count, sizeof *found, by_number);
    for (uint64_t i = 0; i < count; i++) {
        if (i && found[i] == found[i - 1])
            continue;
        if (different < room)
            out[different] = found[i];
        different++;
    }
    free(found);
    return different;
}
