/* Numbers sorted in slices, so that whoever waits is heard. What is in order already, either way round, is found so first. */
#include "heapx.h"
#include "sort.h"

#define AT_ONCE 65536u

enum { STEP_LOOK, STEP_COUNT, STEP_PLACE, STEP_DONE };

void sort_open(struct sort *sort, uint64_t *values, uint64_t *spare, size_t count)
{
    memset(sort, 0, sizeof *sort);
    sort->values = values;
    sort->spare = spare;
    sort->count = count;
    sort->step = STEP_LOOK;
}

static void reverse(uint64_t *values, size_t count)
{
    for (size_t i = 0; i < count / 2; i++) {
        uint64_t value = values[i];
        values[i] = values[count - 1 - i];
        values[count - 1 - i] = value;
    }
}

/* Which bits differ; nothing is to be done if the order is there. */
static void look(struct sort *sort)
{
    size_t rises = 0, falls = 0;
    sort->step = STEP_COUNT;
    sort->shift = 0;
    for (size_t i = 1; i < sort->count; i++) {
        sort->common |= sort->values[i] ^ sort->values[0];
        rises += sort->values[i] > sort->values[i - 1];
        falls += sort->values[i] < sort->values[i - 1];
    }
    if (!rises)
        reverse(sort->values, sort->count);
    if (!rises || !falls)
        sort->step = STEP_DONE;
    while (sort->common && !(sort->common >> sort->shift & 1))
        sort->shift++;      /* addresses are multiples of something */
}

static void next_digit(struct sort *sort)
{
    while (sort->shift < 64 && !(sort->common >> sort->shift & (SORT_DIGITS - 1)))
        sort->shift += SORT_BITS;
    if (sort->shift >= 64)
        sort->step = STEP_DONE;
}

static void count_digits(struct sort *sort, size_t until)
{
    for (size_t i = sort->place; i < until; i++)
        sort->starts[sort->values[i] >> sort->shift & (SORT_DIGITS - 1)]++;
    if (until < sort->count)
        return;
    size_t sum = 0;
    for (unsigned digit = 0; digit < SORT_DIGITS; digit++) {
        size_t here = sort->starts[digit];
        sort->starts[digit] = sum;
        sum += here;
    }
}

static void place_digits(struct sort *sort, size_t until)
{
    for (size_t i = sort->place; i < until; i++)
        sort->spare[sort->starts[sort->values[i] >> sort->shift & (SORT_DIGITS - 1)]++] = sort->values[i];
    if (until < sort->count)
        return;
    uint64_t *values = sort->values;
    sort->values = sort->spare;
    sort->spare = values;
    memset(sort->starts, 0, sizeof sort->starts);
    sort->shift += SORT_BITS;
}

int sort_slice(struct sort *sort, double deadline)
{
    if (sort->step == STEP_LOOK)
        look(sort);
    while (sort->step != STEP_DONE) {
        if (!sort->place && sort->step == STEP_COUNT)
            next_digit(sort);
        if (sort->step == STEP_DONE)
            break;
        size_t until = sort->place + AT_ONCE < sort->count ? sort->place + AT_ONCE : sort->count;
        (sort->step == STEP_COUNT ? count_digits : place_digits)(sort, until);
        sort->place = until;
        if (until == sort->count) {
            sort->place = 0;
            sort->step = sort->step == STEP_COUNT ? STEP_PLACE : STEP_COUNT;
        }
        if (clock_now() > deadline)
            return 1;
    }
    return 0;
}

/* Sorts the caller's numbers where they are, all at once: ten million take 0.1 s. 0: there is no memory for that. */
int heapx_sort(uint64_t *values, uint64_t count)
{
    struct sort sort;
    uint64_t *spare = big_alloc((size_t) count * sizeof *values + 1);

    if (!spare)
        return 0;
    sort_open(&sort, values, spare, (size_t) count);
    while (sort_slice(&sort, clock_now() + 1))
        ;
    if (sort.values != values)
        memcpy(values, sort.values, (size_t) count * sizeof *values);
    big_free(spare, (size_t) count * sizeof *values + 1);
    return 1;
}
