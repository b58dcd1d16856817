/* Candidates as they are kept until all blocks are known: see struct piece. */
#include "candidates.h"

#include <stdlib.h>

void piece_release(struct piece *piece)
{
    if (piece && !__atomic_sub_fetch(&piece->users, 1, __ATOMIC_ACQ_REL))
        big_free(piece, sizeof *piece);     /* goes back at once when it is decoded */
}

static int segments_room(struct segments *segments, uint64_t more)
{
    if (segments->room - segments->count >= more)
        return 1;
    const uint64_t room = 2 * segments->count + more + 4;
    struct segment *all = realloc(segments->all, (size_t) room * sizeof *all);
    if (!all)
        return 0;
    segments->all = all;
    segments->room = room;
    return 1;
}

/* One more, as part of the last one where it follows that. There is room. */
static void segments_add(struct segments *segments, const struct segment *segment)
{
    struct segment *last = segments->count ? &segments->all[segments->count - 1] : NULL;
    if (last && last->piece == segment->piece && last->end == segment->from && !last->is_open
        && last->candidates + segment->candidates <= SEGMENT_MOST) {
        last->end = segment->end;
        last->candidates += segment->candidates;
        last->is_open = segment->is_open;
        piece_release(segment->piece);
    } else {
        segments->all[segments->count++] = *segment;
    }
}

int segments_append(struct segments *segments, struct segments *more)
{
    if (!segments_room(segments, more->count))
        return 0;
    for (uint64_t i = 0; i < more->count; i++)
        segments_add(segments, &more->all[i]);
    more->count = 0;
    return 1;
}

void segments_free(struct segments *segments, uint64_t done)
{
    for (uint64_t i = done; i < segments->count; i++)
        piece_release(segments->all[i].piece);
    free(segments->all);
    memset(segments, 0, sizeof *segments);
}

static void open_segment(struct writer *writer, uint64_t slot)
{
    const struct segment segment = {writer->piece, writer->piece ? writer->piece->used : 0, 0, writer->node, 0, slot, 0};
    writer->segment = segment;
}

void writer_begin(struct writer *writer, struct segments *segments, uint64_t node, uint64_t slot)
{
    writer->segments = segments;
    writer->node = (uint32_t) node;
    writer->last_slot = writer->group_slot = slot;
    open_segment(writer, slot);
}

/* The groups that were written are a segment, and what follows is another. */
static int end_segment(struct writer *writer, int is_open)
{
    struct segment *segment = &writer->segment;
    if (!writer->piece || writer->piece->used == segment->from)
        return 0;
    if (!segments_room(writer->segments, 1))
        return NO_MEMORY;
    segment->end = writer->piece->used;
    segment->is_open = is_open;
    __atomic_add_fetch(&writer->piece->users, 1, __ATOMIC_RELAXED);
    segments_add(writer->segments, segment);
    return 0;
}

int writer_room(struct writer *writer, uint32_t bytes)
{
    if (writer->piece && PIECE_BYTES - writer->piece->used >= bytes && writer->segment.candidates < SEGMENT_MOST)
        return 1;
    if (end_segment(writer, 0))     /* where a node goes on, its last group was full and says so */
        return 0;
    if (!writer->piece || PIECE_BYTES - writer->piece->used < bytes) {
        piece_release(writer->piece);
        writer->piece = big_alloc(sizeof *writer->piece);
        if (!writer->piece)
            return 0;
        writer->piece->users = 1;
    }
    open_segment(writer, writer->group_slot);
    return 1;
}

static int group_write(struct writer *writer)
{
    struct group *group = &writer->group;
    if (!writer_room(writer, group->bytes + 1))
        return NO_MEMORY;
    uint8_t *to = writer->piece->bytes + writer->piece->used;
    *to = (uint8_t) group->count;
    memcpy(to + 1, group->room, group->bytes);
    writer->piece->used += group->bytes + 1;
    writer->segment.candidates += group->count;
    writer->group_slot = writer->last_slot;
    group->count = group->bytes = 0;
    return 0;
}

int writer_add(struct writer *writer, uint64_t slot, uint32_t number, uint64_t address, int slotted)
{
    struct group *group = &writer->group;
    const uint64_t packed = packed_address(number, address);
    if (group->count == GROUP_MOST) {
        int failed = group_write(writer);
        if (failed)
            return failed;
    }
    if (slotted) {
        const uint64_t away = slot - writer->last_slot;
        const uint32_t far = (uint32_t) away;
        writer->last_slot = slot;
        writer->slotted++;
        group->room[group->bytes++] = away < 255 ? (uint8_t) away : 255;
        if (away >= 255) {
            memcpy(group->room + group->bytes, &far, 4);
            group->bytes += 4;
        }
    }
    for (unsigned i = 0; i < writer->address_bytes; i++)
        group->room[group->bytes + i] = (uint8_t) (packed >> 8 * i);
    group->bytes += writer->address_bytes;
    group->count++;
    writer->candidates++;
    return 0;
}

int writer_end_node(struct writer *writer)
{
    int failed = writer->group.count == GROUP_MOST ? group_write(writer) : 0;
    failed = failed ? failed : group_write(writer);
    writer->last_slot = writer->group_slot = 0;
    writer->node += !failed;
    return failed;
}

int writer_cut(struct writer *writer, int is_open)
{
    const int has_group = is_open && writer->group.count;
    int failed = has_group ? group_write(writer) : 0;
    failed = failed ? failed : end_segment(writer, has_group);
    open_segment(writer, writer->group_slot);
    return failed;
}

void writer_close(struct writer *writer)
{
    piece_release(writer->piece);
    writer->piece = NULL;
}
