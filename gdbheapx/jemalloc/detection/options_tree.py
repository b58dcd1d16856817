"""jemalloc's options without symbols: their names stand in mallctl's tree; the code of each leaf shows where its variable lies.

A row is ctl_named_node_t {node.named, name, nchildren, children, ctl} (ctl.h), the same in every release of 5. A leaf of `opt` copies its
variable (ctl.c: CTL_RO_NL_GEN): the first place in .data or .bss that its code reads relative to itself. Names alone where arch/ does not
decode it.
"""

from array import array
from typing import Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.inferior.base import Module, Target

ROW_BYTES = 40
MOST_ROWS = 200
NAMED = (1).to_bytes(8, "little")
"""node.named of a row with a name."""
FIRST, SECOND = "version", "epoch"
"""Names of the root's first children in every release."""
MOST_CODE_BYTES = 512


class Leaf(NamedTuple):
    """One option."""

    name: str
    """Without `opt.`."""
    variable: Optional[int]
    """Address of what it is read from; None where the code is not here, or does not tell."""


def find(target: Target, module: Module, memory: Sequence[Tuple[int, bytes]]) -> List[Leaf]:
    """Every option of this build; empty where the tree is not there."""
    root = next(_roots(target, memory), None)
    rows = {name: (count, children) for name, count, children, _ in _rows(target, root, MOST_ROWS)} if root is not None else {}
    if "opt" not in rows:
        return []
    leaves = [(name, code) for name, count, _, code in _rows(target, rows["opt"][1], min(rows["opt"][0], MOST_ROWS)) if not count]
    starts, spans = sorted({code for _, code in leaves if code}), target.writable_segments(module)
    return [Leaf(name, _variable(target, code, starts, spans) if code else None) for name, code in leaves]


def _roots(target: Target, memory: Sequence[Tuple[int, bytes]]) -> Iterator[int]:
    """Addresses of the row `version` that the row `epoch` follows."""
    texts: Dict[int, Optional[str]] = {}
    for address, data in memory:
        at = data.find(NAMED)
        while at >= 0:
            pair = [] if address + at & 7 else array("Q", data[at : (at + 2 * ROW_BYTES) if at + 2 * ROW_BYTES <= len(data) else at])
            if len(pair) == 10 and pair[5] == 1 and not pair[2] and pair[1] > 4096 and pair[4]:
                for pointer in (pair[1], pair[6]):
                    if pointer not in texts:
                        texts[pointer] = target.text_at(pointer, 16)
                if texts[pair[1]] == FIRST and texts[pair[6]] == SECOND:
                    yield address + at
            at = data.find(NAMED, at + 1)


def _rows(target: Target, start: int, most: int) -> Iterator[Tuple[str, int, int, int]]:
    """(name, number of children, children, code) of the rows from here on."""
    data = target.read_prefix(start, most * ROW_BYTES)
    for at in range(0, len(data) - ROW_BYTES + 1, ROW_BYTES):
        named, name, count, children, code = array("Q", data[at : at + ROW_BYTES])
        text = target.text_at(name, 64) if named & 0xFF == 1 and name else None
        if not text:
            return
        yield text, count, children, code


def _variable(target: Target, code: int, starts: Sequence[int], spans: Sequence[Tuple[int, int, int]]) -> Optional[int]:
    """The first place in writable memory that the function reads relative to itself."""
    end = next((start for start in starts if start > code), code + MOST_CODE_BYTES)
    reads = target.arch.relative_reads
    places = reads(code, target.read_prefix(code, min(end - code, MOST_CODE_BYTES))) if reads is not None else ()
    return next((place for place in places if any(start <= place < end for start, _, end in spans)), None)
