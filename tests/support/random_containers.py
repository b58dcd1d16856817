"""Programs of random containers, made of a seed: forms, layouts, holders, sizes, and how many elements are in use elsewhere, each with its truth recorded.

A form is what its elements have beside what all have, what its holder has, and how the elements e[0..n) are linked from H, the holder. E and H are the types.
"""

import random
from typing import List, NamedTuple, Tuple

CONTAINERS = 12
"""So many a program, and two graphs that two variables hold."""


class Form(NamedTuple):
    """A kind of container in C."""

    name: str
    links: Tuple[str, ...]
    """Fields of an element, in any order among its others; @ is the container's number."""
    holder: Tuple[str, ...]
    link: str
    last: str = ""
    """What an element ends with, of `size` bytes more."""
    before: str = ""
    """Types and functions in front."""
    size: str = "0"


CHAIN = "for (size_t i = 0; i + 1 < n; i++) { e[i]->next = e[i + 1]; } "
BACK = "for (size_t i = 1; i < n; i++) { e[i]->prev = e[i - 1]; } "
RING = "struct link *at = &H->head; for (size_t i = 0; i < n; i++) { at->next = &e[i]->link; e[i]->link.prev = at; at = &e[i]->link; } at->next = &H->head; H->head.prev = at;"
BUCKETS = "H->size = n / 2 + some(n); H->b = take(H->size * sizeof *H->b);"
INTO = "E **s = &H->b[some(H->size)]; e[i]->chain = *s; *s = e[i];"
HASHED = BUCKETS + " for (size_t i = 0; i < n; i++) { " + INTO + " }"
TREE = """static E *tree@(E **e, long low, long high, E *parent)
{
    if (low >= high)
        return NULL;
    long mid = low + some(high - low > 64 ? (high - low) / 4 : 1) + (high - low) / 3;
    E *one = e[mid];
    (void)parent;
    PARENT
    one->left = tree@(e, low, mid, one);
    one->right = tree@(e, mid + 1, high, one);
    return one;
}"""
COLOURED = """struct rb@ { uintptr_t parent; struct rb@ *right, *left; };"""
COLOURS = """static struct rb@ *colour@(E **e, long low, long high, struct rb@ *parent)
{
    if (low >= high)
        return NULL;
    long mid = (low + high) / 2;
    struct rb@ *one = &e[mid]->rb;
    one->parent = (uintptr_t)parent | some(2);
    one->left = colour@(e, low, mid, one);
    one->right = colour@(e, mid + 1, high, one);
    return one;
}"""
PAGES = """struct page@ { long count; E *values[W@]; struct page@ *below[W@ + 1]; };
static struct page@ *page@(E **e, long low, long high)
{
    struct page@ *one = take(sizeof *one);
    if (high - low <= W@) {
        for (; low < high; low++)
            one->values[one->count++] = e[low];
        return one;
    }
    one->count = W@;
    long step = (high - low - W@) / (W@ + 1), at = low;
    for (int i = 0; i <= W@; i++) {
        long end = i == W@ ? high : at + step;
        one->below[i] = page@(e, at, end);
        if (i < W@)
            one->values[i] = e[end];
        at = end + 1;
    }
    return one;
}"""
LEAVES = """struct plus@ { struct plus@ *parent, *next; long count; void *at[W@]; };
static struct plus@ *last@;
static struct plus@ *plus@(E **e, long low, long high, long width, struct plus@ *parent)
{
    struct plus@ *one = take(sizeof *one);
    one->parent = parent;
    if (width == 1) {
        for (; low < high; low++)
            one->at[one->count++] = e[low];
        if (last@)
            last@->next = one;
        last@ = one;
        return one;
    }
    for (; low < high; low += width)
        one->at[one->count++] = plus@(e, low, low + width < high ? low + width : high, width / W@, one);
    return one;
}"""
RADIX = "struct radix@ { long shift; void *at[16]; };"
CHUNKS = "struct chunk@ { struct chunk@ *next; long count; E *at[30]; };"
INNER = "struct inner@ { struct inner@ *next; E *first, *last; long count; };"

FORMS = (
    Form("singly linked list", ("E *next",), ("E *first",), CHAIN + " H->first = e[0];"),
    Form("list, NULL at both ends", ("E *next", "E *prev"), ("E *first",), CHAIN + BACK + " H->first = e[0];"),
    Form(
        "list with first and last", ("E *next", "E *prev"), ("E *first", "E *last"), CHAIN + BACK + " H->first = e[0]; H->last = e[n - 1];"
    ),
    Form(
        "TAILQ",
        ("E *next; E **back",),
        ("E *first; E **last",),
        "H->last = &H->first; for (size_t i = 0; i < n; i++) { e[i]->back = H->last; *H->last = e[i]; H->last = &e[i]->next; }",
    ),
    Form(
        "LIST",
        ("E *next; E **back",),
        ("E *first",),
        "E **at = &H->first; for (size_t i = 0; i < n; i++) { *at = e[i]; e[i]->back = at; at = &e[i]->next; }",
    ),
    Form("STAILQ", ("E *next",), ("E *first; E **last",), CHAIN + " H->first = e[0]; H->last = &e[n - 1]->next;"),
    Form("ring with its head in the holder", ("struct link link",), ("struct link head",), RING),
    Form(
        "ring with a dummy node", ("E *next", "E *prev"), ("E *dummy",),
        CHAIN + BACK + " E *d = take(sizeof *d); d->next = e[0]; e[0]->prev = d; e[n - 1]->next = d; d->prev = e[n - 1]; H->dummy = d;",
    ),
    Form("circular list by its last", ("E *next",), ("E *last",), CHAIN + " e[n - 1]->next = e[0]; H->last = e[n - 1];"),
    Form("binary tree", ("E *left", "E *right"), ("E *root",), "H->root = tree@(e, 0, n, NULL);", before=TREE.replace("PARENT", "")),
    Form(
        "binary tree with parents",
        ("E *left", "E *right", "E *parent"),
        ("E *root",),
        "H->root = tree@(e, 0, n, NULL);",
        before=TREE.replace("PARENT", "one->parent = parent;"),
    ),
    Form(
        "red-black tree, colours in parents", ("struct rb@ rb",), ("struct rb@ *root",), "H->root = colour@(e, 0, n, NULL);", before=COLOURS
    ),
    Form("hash table of chains", ("E *chain",), ("E **b", "size_t size"), HASHED),
    Form(
        "hash table of chains, keys inside", ("E *chain", "unsigned hash, length"), ("E **b", "size_t size"), HASHED, "char key[]",
        size="8 + some(90)",
    ),
    Form(
        "hash table, linked back", ("E *chain; E **back",), ("E **b", "size_t size"),
        BUCKETS + " for (size_t i = 0; i < n; i++) { " + INTO + " e[i]->back = s; if (e[i]->chain) e[i]->chain->back = &e[i]->chain; }",
    ),
    Form("cache: hash table and ring", ("E *chain", "struct link link"), ("E **b", "size_t size", "struct link head"), HASHED + RING),
    Form(
        "cache: hash table and list", ("E *chain", "E *next", "E *prev"), ("E **b; size_t size", "E *first; E *last"),
        HASHED + CHAIN + BACK + " H->first = e[0]; H->last = e[n - 1];",
    ),
    Form(
        "hash table over one list",
        ("E *next",),
        ("E **b", "size_t size", "struct { E *next; } start"),
        CHAIN
        + " H->start.next = e[0]; "
        + BUCKETS
        + " H->b[0] = (E *)&H->start; for (size_t i = 1; i < H->size; i++) if (some(2)) H->b[i] = e[i * n / (H->size + 1)];",
    ),
    Form(
        "table of pointers",
        (),
        ("E **b", "size_t size"),
        "H->size = n; H->b = take(n * 8); for (size_t i = 0; i < n; i++) { H->b[i] = e[i]; }",
    ),
    Form(
        "open table",
        (),
        ("size_t size", "struct { long hash; E *e; } *b"),
        "H->size = 2 * n; H->b = take(H->size * sizeof *H->b); for (size_t i = 0; i < n; i++) { size_t k = some(H->size); while (H->b[k].e) k = (k + 1) % H->size; H->b[k].e = e[i]; H->b[k].hash = i; }",
    ),
    Form(
        "skip list",
        ("int height",),
        ("E *first",),
        'E *l[12]; E *h = take(sizeof *h + 96); h->height = 12; for (int k = 0; k < 12; k++) l[k] = h; for (size_t i = 0; i < n; i++) for (int k = 0; k < e[i]->height; k++) { l[k]->up[k] = e[i]; l[k] = e[i]; } H->first = h; memset(l, 0, sizeof l); __asm__ volatile("" : : "r"(l) : "memory");',
        "E *up[]",
        size="8 * (height = 1 + __builtin_ctzl(some(1 << 11) | 1 << 11) % 12)",
    ),
    Form("B-tree", (), ("struct page@ *root",), "H->root = page@(e, 0, n);", before=PAGES),
    Form(
        "B+ tree",
        (),
        ("struct plus@ *root",),
        "size_t w = 1; while (w * W@ < n) w *= W@; H->root = plus@(e, 0, n, w, NULL); last@ = NULL;",
        before=LEAVES,
    ),
    Form(
        "radix tree",
        (),
        ("struct radix@ *root",),
        "struct radix@ *r = H->root = take(sizeof *r); for (size_t i = 0; i < n; i++) { struct radix@ *at = r; for (int s = 8; s; s -= 4) { void **p = &at->at[i * 7 >> s & 15]; if (!*p) *p = take(sizeof *r); at = *p; } e[i]->same = at->at[i & 15]; at->at[i & 15] = e[i]; }",
        before=RADIX,
    ),
    Form(
        "tree of children and siblings",
        ("E *parent", "E *child", "E *last", "E *next", "E *prev"),
        ("E *root",),
        "H->root = e[0]; for (size_t i = 1; i < n; i++) { E *p = e[some(i < 6 ? i : i / 3)]; e[i]->parent = p; e[i]->prev = p->last; if (p->last) p->last->next = e[i]; else p->child = e[i]; p->last = e[i]; }",
    ),
    Form(
        "tree of arrays of children",
        ("E *parent", "E **kids; size_t count"),
        ("E *root",),
        "H->root = e[0]; for (size_t i = 0; i < n; i++) for (size_t k = i * 5 + 1; k <= i * 5 + 5 && k < n; k++) { if (!e[i]->kids) e[i]->kids = take(5 * 8); e[i]->kids[e[i]->count++] = e[k]; e[k]->parent = e[i]; }",
    ),
    Form(
        "unrolled list",
        (),
        ("struct chunk@ *first",),
        "for (size_t i = 0; i < n; i++) { if (i % 30 == 0) { struct chunk@ *c = take(sizeof *c); c->next = H->first; H->first = c; } H->first->at[H->first->count++] = e[i]; }",
        before=CHUNKS,
    ),
    Form(
        "list of lists",
        ("E *next", "E *prev"),
        ("struct inner@ *first",),
        "for (size_t i = 0; i < n; i++) { if (i % 40 == 0) { struct inner@ *l = take(sizeof *l); l->next = H->first; H->first = l; l->first = e[i]; } else { e[i]->prev = e[i - 1]; e[i - 1]->next = e[i]; } H->first->last = e[i]; H->first->count++; }",
        before=INNER,
    ),
    Form(
        "deque of chunks",
        (),
        ("void **map", "size_t size", "void **begin, **end"),
        "H->size = n / 64 + 1; H->map = take(H->size * 8); for (size_t i = 0; i < n; i++) { if (i % 64 == 0) H->map[i / 64] = take(512); ((void **)H->map[i / 64])[i % 64] = e[i]; } H->begin = H->map[0]; H->end = (void **)H->map[(n - 1) / 64] + (n - 1) % 64;",
    ),
    Form(
        "list and table of the same", ("E *next", "E *prev"), ("E *first", "E **b; size_t size"),
        CHAIN + BACK + " H->first = e[0]; H->size = n; H->b = take(n * 8); for (size_t i = 0; i < n; i++) { H->b[i] = e[i]; }",
    ),
    Form(
        "list of all and of some", ("E *next", "E *some"), ("E *first", "E *ready"),
        CHAIN + " H->first = e[0]; for (size_t i = 0; i < n; i++) if (some(3) == 0) { e[i]->some = H->ready; H->ready = e[i]; }",
    ),
    Form(
        "used and free list",
        ("E *next", "E *prev"),
        ("E *used", "E *idle"),
        "for (size_t i = 0; i < n; i++) { E **at = some(4) ? &H->used : &H->idle; e[i]->next = *at; if (*at) (*at)->prev = e[i]; *at = e[i]; }",
    ),
    Form(
        "pairing heap",
        ("E *child", "E *next", "E *prev"),
        ("E *root",),
        "H->root = e[0]; for (size_t i = 1; i < n; i++) { E *p = e[some(i)]; e[i]->prev = p; e[i]->next = p->child; if (p->child) p->child->prev = e[i]; p->child = e[i]; }",
    ),
    Form(
        "table of objects with friends",
        ("E *friend", "E *other"),
        ("E **b", "size_t size"),
        "H->size = n; H->b = take(n * 8); for (size_t i = 0; i < n; i++) { H->b[i] = e[i]; e[i]->friend = e[some(n)]; e[i]->other = e[some(n)]; }",
    ),
    Form(
        "ring by one pointer", ("E *next", "E *prev"), ("E *any",),
        CHAIN + BACK + " e[n - 1]->next = e[0]; e[0]->prev = e[n - 1]; H->any = e[n / 3];",
    ),
    Form("list of two types", ("long type; E *next; E *prev",), ("E *first",), CHAIN + BACK + " H->first = e[0];", size="8 * 7 * some(2)"),
)

HOLDERS = ("pointer", "inline", "nested", "behind")


class Element(NamedTuple):
    """What all elements of a container have beside its links."""

    texts: int
    knows_holder: bool
    kind: bool
    """A pointer that all have to one thing."""
    fields: List[str]
    last: str


def element(rng: random.Random, form: Form, number: int) -> Element:
    """A random layout."""
    texts, knows, kind = rng.choice((0, 1, 1, 1, 2, 3)), rng.random() < 0.3, rng.random() < 0.2
    fields = [*form.links, *("char *t%d" % text for text in range(texts)), "E *same"]
    fields += ["H *holder"] * knows + ["struct kind *kind"] * kind
    fields += ["long p%d[%d]" % (pad, rng.randint(1, 5)) for pad in range(rng.randint(0, 3))]
    rng.shuffle(fields)
    if form.name == "list of two types":  # a head that both have
        fields.sort(key=lambda field: field != form.links[0])
    return Element(texts, knows, kind, fields, form.last)


def held(rng: random.Random, way: str) -> Tuple[str, str, str]:
    """Declaration, making, and expression of a holder: @ is its number."""
    inner = " ".join(["long q[%d];" % rng.randint(1, 6)] * rng.randint(0, 1) + ["H h;", "char *name;"])
    return {
        "pointer": ("H *c@;", "c@ = take(sizeof *c@);", "c@"),
        "inline": ("H c@;", "", "(&c@)"),
        "nested": ("struct w@ { %s } *c@;" % inner, "c@ = take(sizeof *c@); c@->name = take_text(40);", "(&c@->h)"),
        "behind": (
            "struct w@ { char *name; long q[%d]; H *h; } *c@;" % rng.randint(1, 6),
            "c@ = take(sizeof *c@); c@->h = take(sizeof *c@->h);",
            "c@->h",
        ),
    }[way]


def container(rng: random.Random, number: int, most: int) -> str:
    """One container in C, and the function that builds it."""
    form, way = rng.choice(FORMS), rng.choice(HOLDERS)
    one = element(rng, form, number)
    count, used = rng.randint(most // 6, most), rng.choice((0, 0, 1, 2, 5, 15))
    fields = [*form.holder, *["long n%d[%d]" % (pad, rng.randint(1, 4)) for pad in range(rng.randint(0, 2))]]
    rng.shuffle(fields)
    declared, made, expression = held(rng, way)
    fill = "".join(" one->t%d = take_text(%d);" % (text, rng.choice((20, 100, 100, 300))) for text in range(one.texts))
    fill += " one->holder = %s;" % expression if one.knows_holder else ""
    fill += " one->kind = &kinds[some(3)];" if one.kind else ""
    fill += " one->height = height;" if form.name == "skip list" else ""
    order = rng.choice(("", "", "shuffle((void **)e, n, 1);", "shuffle((void **)e, n, 10);"))
    before = form.before
    width = rng.choice((7, 8, 15, 16))
    lines = [
        "/* %s, %s, %d elements, %d of 1000 in use in each of three ways%s */"
        % (form.name, way, count, used, ", shuffled" if order else ""),
        "typedef struct e@ E@; typedef struct h@ H@;",
        "#define W@ %d" % width,
        COLOURED if before == COLOURS else "",
        "struct e@ { %s };" % " ".join(field + ";" for field in [*one.fields, *([one.last] if one.last else [])]),
        before,
        "struct h@ { %s };" % " ".join(field + ";" for field in fields),
        declared,
        "static void build@(void)",
        "{",
        "    size_t n = %d;" % count,
        "    int height = 0;",
        "    E **e = stage_pages(n * sizeof *e);",
        "    (void)height;",
        "    used_of_1000 = %d;" % used,
        "    %s" % made,
        "    for (size_t i = 0; i < n; i++) { size_t more = %s; E *one = e[i] = take(sizeof *one + more); waste();%s use(one); }"
        % (form.size, fill),
        "    %s" % order,
        "    %s" % form.link.replace("H->", expression + "->"),
        "    munmap(e, n * sizeof *e);",
        "    OWNS(c@);",
        "}",
    ]
    text = "\n".join(line for line in lines if line.strip())
    for old, new in (("E *", "E@ *"), ("H *", "H@ *"), ("H h;", "H@ h;"), ("H c@", "H@ c@"), ("E **", "E@ **")):
        text = text.replace(" " + old, " " + new).replace("(" + old, "(" + new).replace("\n" + old, "\n" + new)
    return text.replace("&H->", "&%s->" % expression).replace("H->", expression + "->").replace("@", str(number))


SHARED = (
    (
        "a list that two variables hold by its ends",
        "struct s@ *c@; struct s@ *d@;",
        "for (int i = 0; i < 600; i++) { struct s@ *one = take(sizeof *one); one->prev = d@; if (d@) d@->next = one; else c@ = one; d@ = one; one->t = take_text(100); }",
        ("c@", "d@"),
    ),
    (
        "two tables of the same",
        "struct s@ **c@; struct s@ **d@;",
        "c@ = calloc(600, 8); d@ = calloc(600, 8); for (int i = 0; i < 600; i++) { c@[i] = d@[599 - i] = take(sizeof *c@[0]); c@[i]->t = take_text(100); }",
        ("c@", "d@"),
    ),
    (
        "an index and a list of two variables",
        "struct s@ **c@; struct s@ *d@;",
        "c@ = calloc(512, 8); for (int i = 0; i < 600; i++) { struct s@ *one = take(sizeof *one), **s = &c@[some(512)]; one->t = take_text(100); one->chain = *s; *s = one; one->next = d@; if (d@) d@->prev = one; d@ = one; }",
        ("c@", "d@"),
    ),
    (
        "lists of workers, and one of all by another variable",
        "struct s@ *c@[6]; struct s@ *d@;",
        "for (int i = 0; i < 600; i++) { struct s@ *one = take(sizeof *one); one->t = take_text(100); one->chain = c@[i % 6]; c@[i % 6] = one; one->next = d@; d@ = one; }",
        ("c@",),
    ),
)
"""Graphs that are nobody's alone: name, variables, how they are built, whose share is small."""


def shared(rng: random.Random, number: int) -> str:
    """One of them."""
    name, variables, build, whose = rng.choice(SHARED)
    fields = ["struct s@ *next; struct s@ *prev;", "struct s@ *chain;", "char *t;", "long p[%d];" % rng.randint(1, 9)]
    rng.shuffle(fields)
    told = " ".join("MOST(%s, taken / 4);" % one for one in whose)
    return (
        "/* %s */\nstruct s@ { %s };\n%s\nstatic void build@(void)\n{\n    %s\n    %s\n    taken = 0;\n}"
        % (name, " ".join(fields), variables, build, told)
    ).replace("@", str(number))


HEAD = """#include "truth.h"

struct link { struct link *next, *prev; };
struct kind { const char *name; long size; };
struct kind kinds[3];

/* Blocks that are free again lie between the elements. */
static void waste(void)
{
    if (some(8) == 0) {
        void *volatile gone = malloc(16 + some(200)), *volatile kept = some(3) ? NULL : malloc(16 + some(60));
        free(gone);
        free(kept);
    }
}

static void shuffle(void **e, size_t n, size_t one_of)
{
    for (size_t i = 0; i < n; i++)
        if (some(one_of) == 0) {
            size_t other = some(n);
            void *kept = e[i];
            e[i] = e[other];
            e[other] = kept;
        }
}
"""


def program(seed: int, most: int = 3000) -> str:
    """The program of this seed, whose containers have up to so many elements: RECORD THREADS are its arguments."""
    rng = random.Random(seed)
    parts = [container(rng, number, most) for number in range(CONTAINERS)] + [shared(rng, CONTAINERS + number) for number in range(2)]
    order = list(range(len(parts)))
    rng.shuffle(order)
    calls = "\n".join("    build%d();" % number for number in order)
    seeding = "    chance ^= %dull * 0x9E3779B97F4A7C15ull;\n" % (seed + 1)
    main = 'int main(int argc, char **argv)\n{\n    if (argc != 3)\n        stage_fail("usage: RECORD THREADS");\n    truth_begin(argv[1]);\n%s    shuffle(NULL, 0, 1);\n%s\n    truth_ready(atoi(argv[2]));\n}\n'
    return "\n".join([HEAD, "\n\n".join(parts), "", main % (seeding, calls)])
