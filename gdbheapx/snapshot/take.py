"""Takes a snapshot: runs the commands that a file can answer on one look, and keeps what they say."""

import json
import os
import time
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

from gdbheapx import __version__, command, loader, parse
from gdbheapx.allocators.records import heap_sum
from gdbheapx.analysis.pins import find as pins
from gdbheapx.command import Style
from gdbheapx.errors import HeapxError
from gdbheapx.inferior.base import Target
from gdbheapx.model import HeapSum
from gdbheapx.problems import OUT_OF_MEMORY
from gdbheapx.session import Session
from gdbheapx.snapshot import graph, names
from gdbheapx.snapshot.moved import Moved
from gdbheapx.snapshot.record import Head, Record, Recorded, Taking, Told

Encode = Callable[[Any], str]


class Run(NamedTuple):
    """A command as it is run for a snapshot."""

    words: Tuple[str, ...]
    by_model: bool = False
    """Its answer is made again of a model, with the options that are given then."""


STANDING = (
    Run(("arenas",)),
    Run(("bins",)),
    Run(("tcache",)),
    Run(("tunables",)),
    Run(("decay",)),
    Run(("tickers",)),
    Run(("malloc-info",)),
    Run(("malloc-stats",)),
    Run(("chunks", "--histogram")),
)
"""These read what they show while the process stands still."""
BY_ONE_LOOK = (
    Run(("report", "--deep", "--page", "--json")),
    Run(("pins",), True),
    Run(("census",), True),
    Run(("census", "--by", "size"), True),
    Run(("leaks",), True),
    Run(("owners", "--limit", "60"), True),
)
"""The first of them that reads every block does it for all."""


class Step(NamedTuple):
    """A command that was run, before its answer is put into words."""

    run: Run
    answer: Optional[command.Answer]
    error: Optional[HeapxError]
    before: int
    """Problems that were known then."""
    after: int


def take(session: Session, has_names: bool, with_offsets: bool, encode: Encode) -> Record:
    """The snapshot of one look. The process runs on when every block was read. `with_offsets`: where pointers stand in their blocks is
    kept, too. `encode`: an answer's data as JSON text."""
    loader.load_commands()
    target = session.target
    moved = Moved(target.mappings())
    known = _known(target) if not has_names else []
    store = session.store = Taking()
    steps: List[Step] = []
    base = [_step(session, run) for run in STANDING]
    is_live = target.kind == "live"
    session.heaps.may_be_none = True
    if session.heaps.all():
        store.share(pins.HEAPS, pins.standing(session))
    sums = _sums(session)
    for run in BY_ONE_LOOK:
        if is_live and steps and store.shared("reach") is None:
            hint = "take the snapshot from a core, or where there is more memory"
            error = HeapxError("there was no room to look at every block at once", hint, code=OUT_OF_MEMORY)
            steps.append(Step(run, None, error, 0, 0))
        else:
            steps.append(_step(session, run))
    target.let_go()
    first = base[0].after if base else 0
    answers: Dict[str, Recorded] = {}
    for step in [*base, *steps]:
        answers.setdefault(step.run.words[0], moved.value(_recorded(session, step, first, encode)))
    record = Record(_head(session, moved, sums, _rss_bytes(session, answers.get("report"))), answers, {})
    blocks, streams = graph.kept(session, moved.moves(), with_offsets, has_names)
    if blocks is not None:
        store.kept(graph.MODEL, graph.KeptGraph, lambda: blocks)
    record = record._replace(models=store.encoded(moved.value), streams=streams)
    return record if has_names else names.without(record, known)


def _step(session: Session, run: Run) -> Step:
    """Run it; what it cannot do is part of the answer."""
    found = command.find(run.words[0])
    assert found is not None, run.words
    options = parse.parse(run.words, "gdbheapx").options
    before = len(session.problems)
    try:
        answer, error = found.run(session, options), None
    except HeapxError as failed:
        answer, error = None, failed
    return Step(run, answer, error, before, len(session.problems))


def _recorded(session: Session, step: Step, first: int, encode: Encode) -> Recorded:
    """In words. `first`: problems of the walk over the heaps, which all answers rest on."""
    own = session.problems[step.before : step.after] if step.before >= first else []
    problems = [Told(*one) for one in [*session.problems[:first], *own]]
    partial = session.partial and bool(problems)
    if step.error is not None or step.answer is None:
        error = step.error
        return Recorded(error=error.message, hint=error.hint, code=error.code) if error else Recorded(error="")
    if step.run.by_model:
        return Recorded(partial=partial, problems=problems)
    data = json.loads(encode(step.answer.data()))
    lines, plain = ([str(line) for line in step.answer.text(Style(one, False))] for one in (False, True))
    return Recorded(data, lines, plain, step.answer.finding, step.answer.document, partial, problems)


def _sums(session: Session) -> List[HeapSum]:
    """Of each heap."""
    return [heap_sum(heap.info.id, heap.histogram(), heap.arenas(), heap.totals()) for heap in session.heaps.all()]


def _rss_bytes(session: Session, report: Optional[Recorded]) -> Optional[int]:
    """As `report` has added it up; None for a core."""
    data = report.data if report is not None and session.target.kind == "live" else None
    found = (data.get("memory") or {}).get("total_bytes") if isinstance(data, dict) else None
    return found if isinstance(found, int) else None


def _head(session: Session, moved: Moved, sums: List[HeapSum], rss_bytes: Optional[int]) -> Head:
    target: Any = session.target
    return Head(
        version=__version__,
        taken=_utc(time.time()),
        kind=target.kind,
        pid=target.pid,
        executable=target.executable,
        stopped_ms=getattr(target, "stopped_ms", None),
        stops=getattr(target, "stops", None),
        rss_bytes=rss_bytes,
        has_names=True,
        allocators=list(session.discovery.infos()),
        heaps=sums,
        mappings=moved.places(),
        core_written=_written(target.core_path) if target.kind == "core" else None,
    )


def _utc(unix_s: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(unix_s))


def _written(path: Optional[str]) -> Optional[str]:
    """When a file was last written; None where that cannot be told."""
    try:
        return _utc(os.stat(path).st_mtime) if path is not None else None
    except (OSError, ValueError, OverflowError):
        return None


def _known(target: Target) -> List[str]:
    """Names that sentences may have in them: of files, mappings, threads and the program."""
    found = {one.name for one in target.mappings()} | {module.file_name for module in target.modules()} | {target.executable or ""}
    found |= {thread.name or "" for thread in target.threads()}
    return sorted(name for name in found if name and not name.startswith("["))
