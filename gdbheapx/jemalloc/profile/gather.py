"""Many structs from all over memory, neighbours read at once; and red-black trees of them, a level of every tree at a time (rb.h)."""

from typing import Callable, Dict, Iterable, List, NamedTuple, Optional, Sequence, Set, Tuple

from gdbheapx.jemalloc.context import Context
from gdbheapx.layout.view import View

GAP_BYTES = 4096
"""Pieces closer than this are read at once with what lies between them."""
RUN_BYTES = 1 << 20
"""Longest read."""


def pieces(context: Context, wanted: Iterable[Tuple[int, int]]) -> Dict[int, bytes]:
    """Bytes by address for every (address, size_bytes) that can be read whole."""
    found: Dict[int, bytes] = {}
    run: List[Tuple[int, int]] = []
    end = 0
    for address, size in sorted(set(wanted)):
        if run and (address - end > GAP_BYTES or address + size - run[0][0] > RUN_BYTES):
            _read(context, run, end, found)
            run, end = [], 0
        run.append((address, size))
        end = max(end, address + size)
    if run:
        _read(context, run, end, found)
    return found


def _read(context: Context, run: Sequence[Tuple[int, int]], end: int, found: Dict[int, bytes]) -> None:
    start = run[0][0]
    data = context.target.read_prefix(start, end - start)
    for address, size in run:
        part = data[address - start : address - start + size]
        if len(part) < size:  # a hole before it
            part = context.target.read_prefix(address, size)
        if len(part) == size and len(part) >= len(found.get(address, b"")):
            found[address] = part


def views(context: Context, struct: str, addresses: Iterable[int]) -> Dict[int, View]:
    """The structs at these addresses; those that cannot be read are missing."""
    size, order = context.types.size_bytes(struct), context.geometry.little_endian
    read = pieces(context, ((address, size) for address in addresses))
    return {address: View(context.types, struct, address, data, order) for address, data in read.items()}


class Damage(NamedTuple):
    """A place where a tree does not go on."""

    address: int
    what: str


class Forest(NamedTuple):
    """The nodes of several trees."""

    nodes: Dict[int, View]
    """By address."""
    tree_of: Dict[int, int]
    """Address -> the owner of its tree, as it was given."""
    damage: List[Damage]


def forest(
    context: Context, struct: str, link: str, roots: Iterable[Tuple[int, int]], most: int, owns: Optional[Callable[[View], int]] = None
) -> Forest:
    """Every node of the red-black trees whose roots are given as (owner, address of the root, or 0).

    A node's left child is link.rbn_left, its right one link.rbn_right_red less the lowest bit, which is the colour; leaves are null.
    `owns`, if given, tells whose tree a node says that it is in. No node is visited twice; at most `most` are.
    """
    found = Forest({}, {}, [])
    frontier = {root: owner for owner, root in roots if root}
    seen: Set[int] = set(frontier)
    while frontier and len(found.nodes) < most and not context.budget.expired():
        read = views(context, struct, frontier)
        children: Dict[int, int] = {}
        for address, owner in frontier.items():
            view = read.get(address)
            if view is None:
                found.damage.append(Damage(address, "cannot be read"))
                continue
            if owns is not None and owns(view) != owner:
                found.damage.append(Damage(address, "belongs to 0x%x, not to 0x%x" % (owns(view), owner)))
                continue
            found.nodes[address], found.tree_of[address] = view, owner
            for child in (view[link + ".rbn_left"], view[link + ".rbn_right_red"] & ~1):
                if child in seen:
                    found.damage.append(Damage(child, "appears twice"))
                elif child:
                    seen.add(child)
                    children[child] = owner
        frontier = children
    if frontier:
        found.damage.append(Damage(next(iter(frontier)), "is where the walk ended"))
    return found
