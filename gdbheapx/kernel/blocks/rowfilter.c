/* See rowfilter.h. Each condition on one of the first bytes excludes values of that byte; the bytes that exclude most are kept. A filter
   only excludes what the row itself would: answers are the same without it. */
#include "rowfilter.h"

#include <stdlib.h>
#include <string.h>

/* Row by row what each byte may be. */
struct draft {
    uint64_t rows[FILTER_BYTES][256];
};

/* What the byte at `shift` of a number may be that is in the set, before the mask. */
static void bytes_of_set(const struct number_set *set, unsigned shift, uint8_t *may)
{
    memset(may, 0, 256);
    for (uint64_t i = 0; i < set->places; i++)
        if (set->numbers[i])
            may[set->numbers[i] >> shift & 0xff] = 1;
    for (uint64_t i = 0; !set->places && i < set->count; i++) {
        const uint64_t low = set->numbers[2 * i] >> shift, high = (set->numbers[2 * i + 1] - 1) >> shift;
        if (set->numbers[2 * i] >= set->numbers[2 * i + 1])
            continue;
        for (uint64_t byte = 0; byte < 256; byte++)
            may[byte] |= low >> 8 != high >> 8 || (byte >= (low & 0xff) && byte <= (high & 0xff));
    }
}

/* What the byte at `shift` of the number may be for the condition to hold. */
static void bytes_of(const struct asked_rows *asked, const struct condition *condition, unsigned shift, uint8_t *may)
{
    const uint64_t whole = condition->width < 8 ? (UINT64_C(1) << 8 * condition->width) - 1 : UINT64_MAX;
    const uint64_t here = UINT64_C(0xff) << shift, elsewhere = whole & condition->mask & ~here, with = condition->operand;
    const int is_set = condition->op == IN_SET || condition->op == IN_RANGES;
    uint8_t of_set[256];
    if (is_set)
        bytes_of_set(&asked->sets[with], shift, of_set);
    for (uint64_t byte = 0; byte < 256; byte++) {
        const uint64_t part = byte << shift & condition->mask;
        if (is_set)
            may[byte] = of_set[part >> shift];
        else if (condition->base != NUMBER)
            may[byte] = 1;
        else if (condition->op == EQUAL)
            may[byte] = part == (with & here);
        else if (condition->op == NOT_EQUAL)
            may[byte] = elsewhere || part != with;
        else if (condition->op == AT_MOST)
            may[byte] = part <= with;
        else
            may[byte] = (part | elsewhere) >= with;
    }
}

static void draft_row(struct draft *draft, const struct asked_rows *asked, const struct row_numbers *row, uint64_t bit)
{
    const int is_little = is_swapped(1) == asked->swap;
    uint8_t may[256];
    for (uint64_t at = row->first; at < row->end; at++) {
        const struct condition *condition = &asked->conditions[at];
        for (uint64_t i = 0; i < condition->width && condition->offset + i < FILTER_BYTES; i++) {
            bytes_of(asked, condition, (unsigned) (8 * (is_little ? i : condition->width - 1 - i)), may);
            for (unsigned byte = 0; byte < 256; byte++)
                draft->rows[condition->offset + i][byte] &= may[byte] ? UINT64_MAX : ~bit;
        }
    }
}

#define OFTEN_ZERO 96.0                 /* how much more often than another a byte is zero, or printable */
#define OFTEN_TEXT 2.0
#define LEAST_GAIN 0.02

/* How likely a byte there lets each row pass. */
static void passing(const uint64_t *rows, uint64_t count, double *passes)
{
    double all = 0;
    memset(passes, 0, FILTER_ROWS * sizeof *passes);
    for (unsigned byte = 0; byte < 256; byte++) {
        const double often = !byte ? OFTEN_ZERO : byte >= 0x20 && byte < 0x7f ? OFTEN_TEXT : 1.0;
        all += often;
        for (uint64_t row = 0; row < count; row++)
            passes[row] += rows[byte] >> row & 1 ? often : 0;
    }
    for (uint64_t row = 0; row < count; row++)
        passes[row] /= all;
}

/* The bytes that exclude most, one after the other, as if they had nothing to do with each other. */
static void choose(struct row_filter *filter, const struct draft *draft, uint64_t count, double (*passes)[FILTER_ROWS])
{
    double left[FILTER_ROWS];
    for (uint64_t row = 0; row < count; row++)
        left[row] = 1;
    for (unsigned place = 0; place < FILTER_BYTES; place++)
        passing(draft->rows[place], count, passes[place]);
    while (filter->place_count < FILTER_PLACES) {
        double best = LEAST_GAIN;
        unsigned at = FILTER_BYTES;
        for (unsigned place = 0; place < FILTER_BYTES; place++) {
            double gain = 0;
            for (uint64_t row = 0; row < count; row++)
                gain += left[row] * (1 - passes[place][row]);
            at = gain > best ? place : at;
            best = gain > best ? gain : best;
        }
        if (at == FILTER_BYTES)
            return;
        for (uint64_t row = 0; row < count; row++) {
            left[row] *= passes[at][row];
            passes[at][row] = 1;
        }
        memcpy(filter->by_byte[filter->place_count], draft->rows[at], sizeof draft->rows[at]);
        filter->places[filter->place_count++] = at;
    }
}

struct row_filter *row_filters_new(const struct asked_rows *asked)
{
    const uint64_t filters = (asked->row_count + FILTER_ROWS - 1) / FILTER_ROWS;
    struct row_filter *made = calloc((size_t) filters + 1, sizeof *made);
    struct draft *draft = malloc(sizeof *draft);
    double (*passes)[FILTER_ROWS] = malloc(FILTER_BYTES * sizeof *passes);
    for (uint64_t i = 0; made && draft && passes && i < filters; i++) {
        const uint64_t first = i * FILTER_ROWS, rest = asked->row_count - first, count = rest < FILTER_ROWS ? rest : FILTER_ROWS;
        made[i].first = first;
        memset(draft, 0xff, sizeof *draft);
        for (uint64_t number = 0; number < count; number++) {
            const struct row_numbers *row = &asked->rows[first + number];
            const uint64_t bit = UINT64_C(1) << number;
            for (uint64_t size = 0; size <= FILTER_SIZES; size++)
                if ((size == FILTER_SIZES || row->least_usable <= 8 * size + 7) && row->most_usable >= 8 * size)
                    made[i].by_size[size] |= bit;
            draft_row(draft, asked, row, bit);
        }
        choose(&made[i], draft, count, passes);
        for (; made[i].place_count < FILTER_AT_ONCE; made[i].place_count++)     /* at place 0, and excludes none */
            memset(made[i].by_byte[made[i].place_count], 0xff, sizeof made[i].by_byte[0]);
        for (unsigned place = 0; place < FILTER_AT_ONCE; place++)
            made[i].furthest = made[i].places[place] > made[i].furthest ? made[i].places[place] : made[i].furthest;
    }
    const int failed = !draft || !passes;
    free(draft);
    free(passes);
    if (failed) {
        free(made);
        return NULL;
    }
    return made;
}
