"""JSON of an answer: records, addresses, streams, and what is cut short.

Files: model.py.
"""

import json as standard
from typing import Any, Callable, Iterator, List, NamedTuple, Optional

from gdbheapx.command import JsonLines
from gdbheapx.model import StepSentence, TargetAddress
from gdbheapx.report import encodings


class Row(NamedTuple):
    """A record."""

    at: Optional[TargetAddress]
    sizes: Any


def always(step: Callable[[], None]) -> bool:
    """Nothing is cut short."""
    step()
    return True


def written(value: Any, guard: Callable[[Callable[[], None]], bool] = always) -> Any:
    """What a reader of the document gets."""
    out: List[str] = []
    encodings.write_json(value, out.append, guard)
    return standard.loads("".join(out))


def test_records_are_objects_and_addresses_hex() -> None:
    """Unknown is null; tuples, sets and generators are arrays; keys are strings."""
    value = {1: Row(TargetAddress(0x7F00), (1, 2)), "more": [Row(None, {3})], "made": (one for one in "ab"), "step": StepSentence("trim", "gives")}
    assert encodings.make_jsonable(value) == {"1": {"at": "0x7f00", "sizes": [1, 2]}, "more": [{"at": None, "sizes": [3]}], "made": ["a", "b"], "step": "trim gives"}


def test_what_has_no_type_of_json_is_text() -> None:
    """A path, say."""
    assert encodings.make_jsonable(complex(1, 2)) == "(1+2j)"
    assert standard.loads(encodings.encode_json("\udcff")) == "\udcff"


def test_members_are_made_when_their_turn_comes() -> None:
    """A count behind a list is that of the list, as it was written."""
    counted = [0]

    def entries() -> Iterator[str]:
        for number in range(3):
            counted[0] += 1
            yield str(number)

    assert written({"rows": JsonLines(entries()), "count": lambda: counted[0], "plain": [1]}) == {"rows": [0, 1, 2], "count": 3, "plain": [1]}


def test_an_empty_stream_is_an_empty_array() -> None:
    """And valid."""
    assert written(JsonLines(iter(()))) == []


def test_what_is_cut_short_is_closed() -> None:
    """The rows so far, null for what comes behind."""

    def entries() -> Iterator[str]:
        yield "1"
        raise KeyboardInterrupt

    def cut(step: Callable[[], None]) -> bool:
        try:
            step()
        except (KeyboardInterrupt, ZeroDivisionError):
            return False
        return True

    assert written({"rows": JsonLines(entries()), "count": lambda: 1 // 0}, cut) == {"rows": [1], "count": None}
