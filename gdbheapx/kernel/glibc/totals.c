/* What a walk counts. */
#include "chunk.h"

/* mtrim (malloc.c): of a free chunk the first sizeof(struct malloc_chunk) bytes and the partial pages stay. */
void totals_close_run(struct walk_result *totals, uint64_t *run, uint64_t end, const struct chunk_geometry *geometry,
                      struct page_window *pages)
{
    uint64_t start = *run, mask = geometry->page - 1;
    *run = 0;
    if (!start || end - start <= mask + geometry->chunk_struct)
        return;
    uint64_t first = (start + geometry->chunk_struct + mask) & ~mask;
    uint64_t bytes = (end - first) & ~mask;
    if (first >= end || !bytes)
        return;
    totals->interior_ranges++;
    totals->interior_bytes += bytes;
    if (pages->table) {
        struct residency sum = {0, 0, 0, 0, 0};
        page_window_add(pages, first, first + bytes, &sum);
        totals->interior_resident_bytes += sum.resident_bytes;
        totals->interior_exclusive_bytes += sum.exclusive_bytes;
        totals->interior_unsure_bytes += sum.unsure_bytes;
        totals->interior_huge_bytes += sum.huge_bytes;
    }
}

static void count_free(struct walk_result *totals, const struct chunk *chunk)
{
    totals->free_chunks++;
    totals->free_bytes += chunk->size;
    if (chunk->size > totals->largest_free_bytes)
        totals->largest_free_bytes = chunk->size;
    totals->free_sum += chunk->address;
    totals->fd_sum += chunk->fd;
    totals->bk_sum += chunk->bk;
    if (chunk->repeated_size != chunk->size && !totals->bad_prev_size_chunks++)
        totals->bad_prev_size = chunk->address;
    /* PREV_INUSE clear: the chunk before it is free as well, and free() would have merged the two. */
    if (!(chunk->field & FLAG_PREV_INUSE) && chunk->previous && !totals->bad_neighbour_chunks++)
        totals->bad_neighbour = chunk->address;
}

void totals_count(struct walk_result *totals, struct histogram_row *rows, uint64_t *run, const struct chunk_geometry *geometry,
                  const struct chunk *chunk, struct page_window *pages)
{
    struct histogram_row *row = &rows[histogram_class(chunk->size, geometry->shift)];
    if (chunk->status == STATUS_FREE || chunk->status == STATUS_FAST) {
        if (chunk->status == STATUS_FREE) {
            count_free(totals, chunk);
        } else {
            totals->fast_chunks++;
            totals->fast_bytes += chunk->size;
        }
        row->free_chunks++;
        row->free_bytes += chunk->size;
        if (!*run)  /* the fast loop opens no runs: a small free chunk right before this one begins it */
            *run = !(chunk->field & FLAG_PREV_INUSE) && chunk->previous ? chunk->previous : chunk->address;
        return;
    }
    totals_close_run(totals, run, chunk->address, geometry, pages);
    if (chunk->status == STATUS_TCACHE) {
        totals->tcache_chunks++;
        totals->tcache_bytes += chunk->size;
        row->tcache_chunks++;
    } else if (chunk->status == STATUS_TCACHE_STRUCT) {
        totals->tcache_struct_chunks++;
        totals->tcache_struct_bytes += chunk->size;
    } else if (chunk->status == STATUS_FENCE) {
        totals->fence_bytes += chunk->size;
    } else {
        totals->used_chunks++;
        totals->used_bytes += chunk->size;
        row->used_chunks++;
        row->used_bytes += chunk->size;
    }
}

void totals_add_small(struct walk_result *totals, struct histogram_row *rows, const struct chunk_geometry *geometry, uint32_t *counters)
{
    for (uint64_t size = geometry->min_chunk; size <= geometry->small_limit; size += geometry->alignment) {
        uint32_t *pair = counters + (size >> geometry->shift) * 2;
        if (!(pair[0] | pair[1]))
            continue;
        struct histogram_row *row = &rows[histogram_class(size, geometry->shift)];
        uint64_t free_bytes = pair[0] * size, used_bytes = pair[1] * size;
        totals->free_chunks += pair[0];
        totals->free_bytes += free_bytes;
        row->free_chunks += pair[0];
        row->free_bytes += free_bytes;
        totals->used_chunks += pair[1];
        totals->used_bytes += used_bytes;
        row->used_chunks += pair[1];
        row->used_bytes += used_bytes;
        if (pair[0] && size > totals->largest_free_bytes)
            totals->largest_free_bytes = size;
        pair[0] = pair[1] = 0;
    }
}

#define ADD(field) sum->field += part->field
#define FIRST(field) do { if (!sum->field) sum->field = part->field; } while (0)

void totals_add(struct walk_result *sum, const struct walk_result *part)
{
    ADD(used_chunks); ADD(used_bytes); ADD(tcache_chunks); ADD(tcache_bytes);
    ADD(fast_chunks); ADD(fast_bytes); ADD(free_chunks); ADD(free_bytes);
    ADD(tcache_struct_chunks); ADD(tcache_struct_bytes); ADD(top_bytes); ADD(fence_bytes);
    if (part->largest_free_bytes > sum->largest_free_bytes)
        sum->largest_free_bytes = part->largest_free_bytes;
    ADD(interior_bytes); ADD(interior_resident_bytes); ADD(interior_exclusive_bytes); ADD(interior_unsure_bytes); ADD(interior_ranges);
    ADD(interior_huge_bytes);
    FIRST(top_run_start);
    ADD(free_sum); ADD(fd_sum); ADD(bk_sum);
    FIRST(bad_prev_size); ADD(bad_prev_size_chunks);
    FIRST(bad_neighbour); ADD(bad_neighbour_chunks); ADD(further_pieces);
}
