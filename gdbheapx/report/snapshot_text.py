"""What `snapshot` shows when the file is written."""

from typing import Any, Dict, Iterator

from gdbheapx.catalogue import ALIASES
from gdbheapx.command import Style
from gdbheapx.hints import about
from gdbheapx.problems import NO_ALLOCATOR, NOT_IN_SNAPSHOT
from gdbheapx.report import text
from gdbheapx.snapshot.record import GRAPH, Record
from gdbheapx.units import Size, say

BY_GRAPH_ALONE = ("export", "query", "refs", "whatis")
"""Commands that are not run when a snapshot is taken."""


def data(path: str, size_bytes: int, record: Record) -> Dict[str, Any]:
    """The `data` member: what is in the file, and which commands have no answer there."""
    has_graph = GRAPH in record.models
    answered = sorted(
        [*(name for name, outcome in record.outcomes.items() if outcome.error is None), *(BY_GRAPH_ALONE if has_graph else ())]
    )
    return {
        "file": path,
        "file_bytes": size_bytes,
        "has_names": record.head.has_names,
        "keeps_addresses": record.head.keeps_addresses,
        "has_graph": has_graph,
        "taken": record.head.taken,
        "answers": answered,
        "unanswered": {name: outcome.error for name, outcome in sorted(record.outcomes.items()) if outcome.error is not None},
    }


def lines(style: Style, told: Dict[str, Any], record: Record) -> Iterator[str]:
    """The text."""
    names = "" if told["has_names"] else ", without names"
    names += ", original addresses" if told["keeps_addresses"] else ""
    yield text.said(style, say("Wrote %s (%s%s).", told["file"], Size(told["file_bytes"]), names))
    yield "Answers: %s" % ", ".join(sorted({ALIASES.get(name, (name,))[0] for name in told["answers"]}))
    if not told["has_graph"]:
        yield "Without the graph of all blocks, so without whatis and leaks --list."
    for name, why in told["unanswered"].items():
        if record.outcomes[name].code not in (NO_ALLOCATOR, NOT_IN_SNAPSHOT):
            yield "%s: %s" % (name, why)
    yield ""
    yield "Next: %s" % about("snapshot", told["file"], "report")
