/* Blocks as rows of comma-separated values. */
#include "gdbheapx_query.h"

#include <string.h>

#define CSV_NUMBERS 112     /* of a row: numbers, commas and the line's end have no more bytes */

/* Cells that are texts, ready to be written: text i is [starts[i], starts[i + 1]). Words of classes come first, then those of kinds,
   then the allocator, then signatures by label. */
struct csv_words {
    const char *texts;
    const uint64_t *starts;
    const uint64_t *overheads;      /* by kind */
    uint64_t classes, kinds, signatures;
};

static char *put_text(char *out, const struct csv_words *words, uint64_t number)
{
    const uint64_t start = words->starts[number], length = words->starts[number + 1] - start;
    memcpy(out, words->texts + start, length);
    return out + length;
}

static char *put_number(char *out, uint64_t number)
{
    char digits[20];
    int count = 0;
    do
        digits[count++] = (char) ('0' + number % 10);
    while (number /= 10);
    while (count)
        *out++ = digits[--count];
    return out;
}

static char *put_address(char *out, uint64_t number)
{
    int shift = 60;
    *out++ = '0';
    *out++ = 'x';
    while (shift && !(number >> shift))
        shift -= 4;
    for (; shift >= 0; shift -= 4)
        *out++ = "0123456789abcdef"[number >> shift & 15];
    return out;
}

/* Writes `count` rows. `labels`: of each its signature from 1 on, 0 for none; NULL: rows have no such column. `out` has room for each row's
   longest texts and CSV_NUMBERS bytes. Returns the bytes written, or -1 for a number that no word belongs to. */
int64_t heapx_csv_rows(const uint64_t *addresses, const uint64_t *usable, const uint8_t *classes, const uint8_t *kinds,
                       const uint32_t *arenas, const uint32_t *labels, uint64_t count, const struct csv_words *words, char *out)
{
    const char *const begin = out;
    const uint64_t allocator = words->classes + words->kinds;
    for (uint64_t i = 0; i < count; i++) {
        if (classes[i] >= words->classes || kinds[i] >= words->kinds || (labels && labels[i] > words->signatures))
            return -1;
        out = put_address(out, addresses[i]);
        *out++ = ',';
        out = put_number(out, usable[i] + words->overheads[kinds[i]]);
        *out++ = ',';
        out = put_number(out, usable[i]);
        *out++ = ',';
        out = put_text(out, words, classes[i]);
        *out++ = ',';
        out = put_text(out, words, words->classes + kinds[i]);
        *out++ = ',';
        if (arenas[i] != NO_ARENA)
            out = put_number(out, arenas[i]);
        *out++ = ',';
        out = put_text(out, words, allocator);
        if (labels) {
            *out++ = ',';
            if (labels[i])
                out = put_text(out, words, allocator + labels[i]);
        }
        *out++ = '\n';
    }
    return out - begin;
}
