"""Which blocks nothing holds, where the graph does not fit: by passes over memory in ascending order, with some bits a block."""

from typing import List, Optional, Sequence, Tuple

from gdbheapx import problems
from gdbheapx.analysis.reachability import leaks, look, memory_budget, unwritten
from gdbheapx.kernel.blocks.graph import EVIDENCE, FROM_MAPPING, LEAKED
from gdbheapx.session import Session
from gdbheapx.units import Size, say

HINT = "run it where there is more memory to see the roots of what is lost, and which places inside blocks are a habit"


def find(session: Session, interior_holds: bool) -> Optional[leaks.Leaks]:
    """The classes; None where the graph fits. The process stays stopped for all passes."""
    if session.target.kind == "snapshot":  # its graph is there
        return None
    lacking = memory_budget.fits(session, memory_budget.LEAKS_BYTES)
    if lacking is None:
        return None
    memory_budget.check_least(session, memory_budget.SWEEP_BYTES, indexed=True)
    target = session.target
    session.budget.progress.stage = "sweeping over all blocks"
    made = look.world(session, slots=False)
    found = made.regions
    sweep = session.compiled.sweep(unwritten.source(target), made.shape, session.budget)
    sweep.gather([heap.blocks() for heap in made.heaps], made.own_places)
    outside: List[Sequence[Tuple[int, int, int]]] = [
        *([(node.start, low, high) for low, high in look.of_node(target, node)] for node in found.nodes),
        *([(root.start, *part) for part in look.parts(target, root.start, root.end, False)] if root.end else () for root in found.roots),
    ]
    registers = [(place, root) for place, root in enumerate(found.roots) if root.words]
    sums = sweep.mark(outside, [(place, root.words) for place, root in registers], [(place, root.exact) for place, root in registers])
    look.check_time(session)
    numbers = sweep.numbers()
    look.tell_unread(session, numbers.unread_bytes, numbers.unread_at)
    look.tell_shared_in_swap(session, found.nodes)
    look.tell_undumped(session)
    lost = [sweep.evidence(numbers.blocks + place) in (FROM_MAPPING, LEAKED) for place in range(len(found.nodes))]
    target.let_go()
    what = say("the graph of %d blocks takes about %s, and this process may use %s: ", numbers.blocks, *map(Size, lacking))
    what = say("%sthe classes were told by %d passes over memory", what, numbers.passes)
    session.problem(problems.SWEPT, None, what, HINT)
    holding = leaks.held_rules(interior_holds)
    maybe = {EVIDENCE[rule]: sums[rule] for rule in range(LEAKED) if rule not in holding and sums[rule].blocks}
    return leaks.Leaks(
        held=leaks.add([sums[rule] for rule in holding]),
        maybe=leaks.add(list(maybe.values())),
        maybe_by=maybe,
        leaked=sums[LEAKED],
        roots=None,
        groups=(),
        habits=(),
        offsets=(),
        mappings=leaks.mapping_rows([node for node, is_lost in zip(found.nodes, lost) if is_lost]),
        low_addresses=any(start < 1 << 32 for start, _ in made.shape.heaps) and target.word_bytes == 8,
    )
