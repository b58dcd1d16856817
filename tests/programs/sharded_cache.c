/* sharded_cache RECORD ENTRIES THREADS: a cache as databases have it, in 16 shards that lie side by side in one block. Each has a table of
   chains, and a ring of all its entries through a link of its own; entries have their keys inside, so that some are as large as values. */
#include "truth.h"

#define SHARDS 16
#define NO_ENTRIES 20

struct value { char *data; size_t size; void *more[9]; };
struct entry { struct value *value; void (*drop)(void *); struct entry *chain, *next, *prev; size_t charge, key_length; unsigned hash; char key[]; };
struct shard { struct entry ring, *oldest; size_t used, room; struct entry **table; };
struct cache { struct shard *shards; size_t room; };
struct waiting { struct waiting *next; void *more[10]; };

struct cache *g_cache;
struct waiting *g_waiting; /* as large as a value, and linked by the same word that leads from an entry to its value, and to its data */

static void drop(void *value) { free(value); }

static void add(struct shard *shard, size_t key_length)
{
    struct entry *one = take(sizeof *one + key_length), **chain;
    one->value = take(sizeof *one->value);
    one->value->size = 200 + some(600);
    one->value->data = take(one->value->size);
    memset(one->value->data, 'x', one->value->size);
    one->drop = drop;
    one->charge = one->value->size + sizeof *one + key_length;
    one->key_length = key_length;
    one->hash = (unsigned)some(1u << 31);
    memset(one->key, 'k', key_length);
    chain = &shard->table[one->hash % shard->room];
    one->chain = *chain;
    *chain = one;
    one->next = &shard->ring;
    one->prev = shard->ring.prev;
    one->prev->next = shard->ring.prev = one;
    shard->used += one->charge;
    use(one);
}

int main(int argc, char **argv)
{
    if (argc != 4)
        stage_fail("usage: sharded_cache RECORD ENTRIES THREADS");
    const long count = atol(argv[2]);
    truth_begin(argv[1]);
    g_cache = take(sizeof *g_cache);
    g_cache->shards = take(SHARDS * sizeof *g_cache->shards);
    for (int i = 0; i < SHARDS; i++) {
        struct shard *shard = &g_cache->shards[i];
        shard->ring.next = shard->ring.prev = &shard->ring;
        shard->room = 1024;
        shard->table = take(shard->room * sizeof *shard->table);
    }
    for (long i = 0; i < count; i++)
        add(&g_cache->shards[some(SHARDS)], 16 + 8 * (some(8) == 0) + 16 * (some(100) == 0));
    OWNS(g_cache);
    for (long i = 0; i < NO_ENTRIES; i++) {
        struct waiting *one = take(sizeof *one);
        one->next = g_waiting;
        g_waiting = one;
    }
    OWNS(g_waiting);
    truth_ready(atoi(argv[3]));
}
