/* The words of one node: what they point to is marked, or remembered for a later round. */
#include "sweep_scan.h"

#define PAGE 4096u

static void refer(struct sweep *sweep, uint32_t rule, uint64_t slot)
{
    if (sweep->referrer_count < sweep->referrer_room) {
        struct referrer one = {sweep->scanning.node, rule, slot};
        sweep->referrers[sweep->referrer_count] = one;
    }
    sweep->referrer_count++;
}

/* A pointer to node `id`, a block that begins at `start` or (`start` 0) a mapping. */
static void hit(struct sweep *sweep, uint32_t id, uint64_t start, unsigned rule)
{
    if (has_bit(sweep->marked, id))
        return;
    if (rule > sweep->round) {
        if (rule < sweep_rule(sweep, id))
            sweep_set_rule(sweep, id, rule);
        return;
    }
    sweep_mark(sweep, id);
    if (!start || sweep->depth == SWEEP_STACK)
        return;
    const uint64_t away = start - sweep->pass.begin;
    const int is_behind = start < sweep->here && away < sweep->pass.length
                          && index_size(&sweep->index, id) <= sweep->pass.length - away;
    if (sweep->deep_left || is_behind) {
        struct waiting one = {start, id};
        sweep->stack[sweep->depth++] = one;
    }
}

static void point(struct sweep *sweep, uint32_t id, uint64_t start, uint32_t rule, uint64_t slot)
{
    if (sweep->wanted == NO_NODE)
        hit(sweep, id, start, rule);
    else if (id == sweep->wanted)
        refer(sweep, rule, slot);
}

/* What leads to the begin of a block behind another waits for the next candidate, which may say that it is an end. */
static void settle_run(struct sweep *sweep, uint32_t rule)
{
    const struct run *run = &sweep->scanning.run;
    if (run->state == RUN_BEHIND)
        point(sweep, run->id, run->address, rule, sweep->scanning.run_slot);
}

static void end_run(struct sweep *sweep)
{
    settle_run(sweep, RULE_START);
    sweep->scanning.run.state = RUN_NONE;
}

static void candidate(struct sweep *sweep, uint32_t number, uint64_t address, uint64_t slot)
{
    struct run *run = &sweep->scanning.run;
    uint64_t offset = 0;
    const uint32_t block = index_find(&sweep->index, number, address, &offset);
    const uint32_t id = block != NO_NODE ? block : mapping_at(sweep->mappings, sweep->mapping_count, &sweep->index, address);
    if (id == NO_NODE || id == sweep->scanning.node)
        return;
    if (block == NO_NODE || is_exact(slot, sweep->scanning.node, sweep->roots_from)) {
        end_run(sweep);
        point(sweep, id, block != NO_NODE ? address - offset : 0, RULE_START, slot);
        return;
    }
    const int is_begin = !offset;
    const int follows = is_begin && run->state && id == run->id + 1 && address - run->address == index_size(&sweep->index, run->id);
    struct run next = *run;
    const unsigned ends = run_on(&next, id, address, is_begin, follows);
    settle_run(sweep, ends == 2 ? RULE_END : RULE_START);
    *run = next;
    sweep->scanning.run_slot = slot;
    if (next.state != RUN_BEHIND)
        point(sweep, id, address - offset, ends ? RULE_END : is_begin ? RULE_START : offset < sweep->word ? RULE_TAG : RULE_INSIDE, slot);
}

static void sweep_words(struct sweep *sweep, const uint8_t *bytes, uint64_t size, uint64_t slot)
{
    uint64_t found[SIEVE_ROOM];
    uint16_t places[SIEVE_ROOM];
    const struct scanning *scanning = &sweep->scanning;
    for (uint64_t words = size / sweep->word; words;) {
        const unsigned now = words < SIEVE_WORDS ? (unsigned) words : SIEVE_WORDS;
        const unsigned count = sieve_words(&sweep->sieve, bytes, now, found, places);
        for (unsigned i = 0; i < count; i++) {
            const uint32_t number = slot_at(&sweep->index, found[i]);
            if (number && found[i] - scanning->base >= scanning->own_bytes)
                candidate(sweep, number, found[i], slot + places[i]);
        }
        bytes += (uint64_t) now * sweep->word;
        slot += now;
        words -= now;
    }
}

void sweep_bytes(struct sweep *sweep, const uint8_t *bytes, uint64_t size, uint64_t slot)
{
    sweep_words(sweep, bytes, size, slot);
    end_run(sweep);
}

/* Bytes at `at`: as many as are at hand, or come with one read. NULL: unreadable. */
static const uint8_t *fetch(struct sweep *sweep, uint64_t *got, int *interrupted)
{
    const struct scanning *scanning = &sweep->scanning;
    struct view *view = scanning->view;
    const uint64_t want = scanning->end - scanning->at;
    uint64_t away = scanning->at - view->begin;
    if (!(away < view->length && view->length - away >= sweep->word)) {
        const uint64_t limit = scanning->limit > scanning->end ? scanning->limit : scanning->end;
        const uint64_t size = limit - scanning->at < SWEEP_READ ? limit - scanning->at : SWEEP_READ;
        const int64_t read = source_read(sweep->memory, scanning->at, view->bytes, size);
        view->begin = scanning->at;
        view->length = read > 0 ? (uint64_t) read : 0;
        sieve_bare(&sweep->sieve, view->bytes, view->length);
        sweep->bytes_read += view->length;
        *interrupted = read < 0;
        away = 0;
        if (view->length < sweep->word)
            return NULL;
    }
    *got = view->length - away < want ? view->length - away : want;
    *got -= *got < want ? *got % sweep->word : 0;
    return view->bytes + away;
}

int64_t sweep_scan(struct sweep *sweep, double deadline)
{
    struct scanning *scanning = &sweep->scanning;
    struct blanks blanks = {0, 0};
    for (unsigned reads = 1; scanning->at < scanning->end && scanning->end - scanning->at >= sweep->word; reads++) {
        int interrupted = 0;
        uint64_t got = 0;
        scanning->at = source_skip(sweep->memory, &blanks, scanning->at, scanning->end) & ~(uint64_t) (sweep->word - 1);
        if (scanning->end - scanning->at < sweep->word)
            break;
        const uint8_t *bytes = fetch(sweep, &got, &interrupted);
        if (interrupted)
            return INTERRUPTED;
        if (bytes) {
            sweep_words(sweep, bytes, got, (scanning->at - scanning->base) / sweep->word);
        } else {
            const uint64_t next = (scanning->at & ~(uint64_t) (PAGE - 1)) + PAGE;
            got = (next < scanning->end && next > scanning->at ? next : scanning->end) - scanning->at;
            if (!sweep->unread_bytes)
                sweep->unread_at = scanning->at;
            sweep->unread_bytes += got;
        }
        scanning->at += got;
        if (!(reads & 7) && clock_now() > deadline)
            return 1;
    }
    scanning->is_active = 0;
    if (!sweep_goes_on(sweep))
        end_run(sweep);
    return 0;
}
