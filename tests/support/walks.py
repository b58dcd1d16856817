"""Paths that a namer gives, of a way made by hand."""

from typing import List, Sequence

from gdbheapx.analysis.reachability.paths import Hop, Namer, PathState, PathStep, Start


def walk(namer: Namer, start: Start, hops: Sequence[Hop]) -> List[PathStep]:
    """Steps as far as the pointers hold."""
    state = PathState(namer.begin_path(start), None)
    for hop, below in zip(hops, hops[1:]):
        move = namer.follow_pointer(state.move.position, hop, below)
        if move is None:
            break
        state = PathState(move, state)
    return state.steps()
