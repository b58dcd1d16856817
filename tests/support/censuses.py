"""What the census's recognisers say of a target, without the command."""

from collections import Counter
from typing import Any, Dict, Sequence

from gdbheapx.allocators.session import Session
from gdbheapx.analysis.census.world import CensusTarget, Recogniser, Signature, order_rows
from gdbheapx.inferior.target import open_elf_target
from tests.support.processes import Process

Told = Dict[Signature, int]
"""How many blocks are what."""


def told(recognisers: Sequence[Recogniser], **where: Any) -> Told:
    """What the blocks of a target are; `where`: as open_elf_target takes it."""
    session = Session(open_elf_target(**where))
    session.prepare()
    world = CensusTarget(session)
    asked = order_rows([ask for one in recognisers for ask in one.asks(world)])
    signatures = world.find(asked.rows, asked.sets)
    asked.settle(signatures)
    blocks: Told = Counter()
    for one in signatures:
        signature = asked.signature(one)
        if signature is not None:
            blocks[signature] += one.blocks
    return blocks


def where(process: Process, kind: str) -> Dict[str, Any]:
    """A test program, as open_elf_target takes it."""
    return {"pid": process.pid} if kind == "live" else {"core": str(process.core())}
