/* Lists that do not end: damage. Said is where one comes back to, and each of its entries counts once.

   Two pointers of different speed meet within the cycle (Brent), which gives its length; two that are as far apart as that, started
   together, meet where the cycle begins. A list that has more than `limit` different entries is too long instead. */
#include "links.h"

void endless_begin(struct list *list)
{
    list->exact = EXACT_MEET;
    list->entry = list->trap = list->head;
    list->lap = list->steps = 0;
    list->laps = 1;
}

/* It comes back to list->entry after `entries` different ones. */
static void settle(struct list *list, uint64_t entries)
{
    if (entries > list->limit) {
        list->state = LIST_ENDED;
        return;
    }
    list->problem = CYCLE;
    list->at = list->entry;
    list->exact = EXACT_COUNT;
    list->entry = list->head;
    list->laps = entries;
    list->lap = 0;
    memset(&list->tally, 0, sizeof list->tally);
}

static void meet(struct list *list, uint64_t next)
{
    list->entry = next;
    list->lap++;
    list->steps++;
    if (next == list->trap) {
        list->exact = EXACT_AHEAD;
        list->laps = list->lap;     /* entries in the cycle */
        list->entry = list->head;
        list->lap = 0;
    } else if (list->lap == list->laps) {
        list->trap = next;
        list->laps *= 2;
        list->lap = 0;
    }
}

int endless_step(struct lists *lists, struct list *list)
{
    struct link link, other;
    if (list->exact == EXACT_AHEAD && list->lap == list->laps) {
        list->exact = EXACT_START;
        list->other = list->head;
        list->lap = 0;
    }
    if (list->exact == EXACT_START && list->entry == list->other)
        settle(list, list->laps + list->lap);
    if (list->exact == EXACT_COUNT && list->lap == list->laps) {
        list->state = LIST_ENDED;
        lists->collect_anew = 1;
    }
    if (list->state == LIST_ENDED)
        return LOAD_DONE;
    int loaded = list->entry ? load(lists, list, list->entry, &link) : LOAD_UNREADABLE;
    if (loaded == LOAD_DONE && list->exact == EXACT_START)
        loaded = load(lists, list, list->other, &other);
    if (loaded == LOAD_PAUSED)
        return loaded;
    if (loaded != LOAD_DONE || list->steps > 8 * list->limit + 64) {
        list->state = LIST_ENDED;   /* it ends after all, beyond the limit */
        return LOAD_DONE;
    }
    if (list->exact == EXACT_MEET) {
        meet(list, link.next);
        return LOAD_DONE;
    }
    if (list->exact == EXACT_COUNT)
        tally_one(&list->tally, list->entry, link.raw);
    if (list->exact == EXACT_START)
        list->other = other.next;
    list->entry = link.next;
    list->lap++;
    return LOAD_DONE;
}
