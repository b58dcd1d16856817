"""For scripts in gdb's Python: `from gdbheapx import api`. Answers are those of the commands with --json.

They are about the process or core that gdb has selected. Errors are HeapxError, whose line() has the cause and the next step.
docs/reference/python-api.md says what stays the same.
"""

from typing import Any, Iterator, List, Mapping, NamedTuple, Optional, Sequence

from gdbheapx.errors import HeapxError, UsageError
from gdbheapx.model import Problem
from gdbheapx.problems import NO_TARGET

__all__ = ["Answer", "Block", "HeapxError", "Problem", "UsageError", "ask", "blocks"]


class Answer(NamedTuple):
    """What a command answered."""

    data: Any
    """The member `data` of its JSON: dicts, lists, numbers, texts; None is unknown. Addresses are hex texts."""
    is_partial: bool
    """Something is missing in it: `problems` says what and why."""
    is_finding: bool
    """The command would end with exit code 3: a broken rule, a blind thread, more leaked than allowed."""
    problems: Sequence[Problem]
    allocators: Sequence[Mapping[str, Any]]
    """Which allocators were found in the target, as the envelope has them."""


class Block(NamedTuple):
    """A block of malloc's."""

    address: int
    """What malloc returned, or would return."""
    usable_bytes: int
    status: str
    """`used`, `free` and so on, as `chunks` calls it."""
    arena: Optional[int]
    """Its index, as in `arenas`; None for a block that belongs to none."""
    allocator: str
    """The id, as in `allocators`."""


def ask(command: str, *options: str) -> Answer:
    """What `heapx COMMAND OPTIONS --json` answers: ask("chunks", "--min-size", "64K"). HeapxError where there is no answer, UsageError for
    a command or option that does not exist."""
    import json

    from gdbheapx import runner
    from gdbheapx.command import load_commands, parse, wants
    from gdbheapx.report.text import escaped

    pieces: List[str] = []
    load_commands(command)
    words = [command, *options, "--json"]
    parsed = parse(words, "heapx")
    if parsed.help is not None or wants(words, "-o", "--output"):
        raise UsageError("%s: neither --help nor -o FILE is for scripts" % command, "read `data` of the answer")
    host = runner.Host("heapx", pieces.append, lambda line: None, lambda: _selected(parsed.command.needs_target), runner.Settings())
    ended = runner.run(words, host)
    if ended.error is not None:
        raise ended.error
    try:
        said = json.loads("".join(pieces))
    except ValueError:
        raise UsageError("%s has no JSON" % escaped(" ".join(words[:-1])), "the command reference says which options write another form")
    problems = [Problem(problem["code"], problem["where"], problem["what"], problem["hint"]) for problem in said["problems"]]
    return Answer(said["data"], said["partial"], ended.code == runner.FINDING, problems, said["allocators"])


def blocks(status: Optional[str] = None, allocator: Optional[str] = None) -> Iterator[Block]:
    """Every block of malloc's, or those with this status, by address in each allocator: for what takes too many of them for JSON.

    The process must stand still, as gdb leaves it, until the last was taken. After the last HeapxError says what could not be read, if
    anything could not.
    """
    from gdbheapx.kernel.blocks.records import NO_ARENA, BlockFilter
    from gdbheapx.session import Session

    session = Session(_selected(), allocator_id=allocator)
    for heap in session.heaps.all():
        words, name = heap.shape.words, heap.info.id
        for batch in heap.blocks(BlockFilter(None if status is None else {kind for kind, word in enumerate(words) if word == status})):
            for address, usable_bytes, kind, arena in zip(batch.addresses, batch.usable_bytes, batch.kinds, batch.arenas):
                yield Block(address, usable_bytes, words[kind], None if arena == NO_ARENA else arena, name)
    for problem in session.problems if session.partial else ():
        raise HeapxError("not all blocks could be read: " + problem.what, problem.hint, code=problem.code)


def _selected(needs_target: bool = True) -> Any:
    """gdb's target; None without one for a command that needs none."""
    try:
        from gdbheapx.inferior.gdb import target
    except ImportError:
        raise HeapxError("this Python does not run inside gdb", "outside gdb: gdbheapx --core FILE COMMAND --json", code=NO_TARGET)
    from gdbheapx import runner

    runner.set_debugger_version(target.version())
    try:
        return target.selected_target()
    except target.NoTarget:
        if needs_target:
            raise
        return None
