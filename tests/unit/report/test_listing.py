"""Listings of chunks, JSON of an answer and pandas frames: the same rows in each form.

Files: command/__init__.py, report/encodings.py, common/model.py.
"""

import json
import json as standard
from typing import Any, Callable, Iterator, List, NamedTuple, Optional, Tuple

import pytest

from gdbheapx.command import JsonLines, TextStyle
from gdbheapx.common import hints
from gdbheapx.common.model import StepSentence, TargetAddress
from gdbheapx.kernel.blocks.stream import (
    CLASS_CACHED,
    CLASS_FREE,
    CLASS_USED,
    NO_ARENA,
    BlockShape,
    NativeBlocks,
    make_blocks,
)
from gdbheapx.report import encodings, pages

EVERYTHING = pages.ChunkSelection(None, None, 0, None, None, None)
KEYS = ["address", "chunk", "size_bytes", "usable_bytes", "status", "arena", "allocator"]


class Info(NamedTuple):
    """Its id."""

    id: str


class Glibc(NamedTuple):
    """Three chunks of an arena, and a mapped one that is in none."""

    kind: str = "glibc"
    info: Info = Info("glibc")
    shape: BlockShape = BlockShape(("used", "free", "mmapped"), (8, 8, 16), 16)

    def listing(self, *selected: Any) -> Iterator[NativeBlocks]:
        yield make_blocks([(0x1010, 24, CLASS_USED, 0, 0), (0x1030, 56, CLASS_FREE, 1, 0), (0x1070, 4088, CLASS_USED, 0, 0)])
        yield make_blocks([(0x7010, 135152, CLASS_USED, 2, NO_ARENA)])


class Jemalloc(NamedTuple):
    """Two blocks of two arenas."""

    kind: str = "jemalloc"
    info: Info = Info("jemalloc")
    shape: BlockShape = BlockShape(("used", "cached"), (0, 0), None)

    def listing(self, *selected: Any) -> Iterator[NativeBlocks]:
        yield make_blocks([(0x9000, 16, CLASS_USED, 0, 1), (0xA000, 64, CLASS_CACHED, 1, 2)])


def data(mallocs: Any, selection: pages.ChunkSelection) -> Tuple[List[Any], int]:
    """What a reader of the JSON gets: the chunks, then how many there were."""
    made = pages.answer_chunks(mallocs, selection).data()
    assert isinstance(made["chunks"], JsonLines)
    return [json.loads(one) for one in made["chunks"].entries], made["count"]()


@pytest.mark.parametrize("malloc", [Glibc(), Jemalloc()], ids=["glibc", "jemalloc"])
def test_both_ways_give_the_same(malloc: Any) -> None:
    """A listing that is limited to more than there is equals one without a limit."""
    plain, count = data([malloc], EVERYTHING)
    assert (plain, count) == data([malloc], EVERYTHING._replace(limit=100)) and count == len(plain)
    assert all(list(row) == KEYS for row in plain)


def test_what_is_listed_of_glibc() -> None:
    """What malloc returned, and the header before it; a mapped chunk has no arena."""
    rows, _ = data([Glibc()], EVERYTHING)
    assert rows[0] == {"address": "0x1010", "chunk": "0x1000", "size_bytes": 32, "usable_bytes": 24, "status": "used", "arena": 0, "allocator": "glibc"}
    assert (rows[3]["arena"], rows[3]["usable_bytes"], rows[3]["status"]) == (None, 135152, "mmapped")


def test_the_largest_first() -> None:
    """Of all allocators; of equal ones the lower address."""
    rows, count = data([Glibc(), Jemalloc()], EVERYTHING._replace(sort="size", limit=4))
    assert [(row["size_bytes"], row["allocator"]) for row in rows] == [(135168, "glibc"), (4096, "glibc"), (64, "glibc"), (64, "jemalloc")] and count == 4


def test_rows_fit_the_terminal() -> None:
    """Columns go by their number, and the line below the rows says which; 80 columns show all."""
    answer = pages.answer_chunks([Glibc(), Jemalloc()], EVERYTHING)
    whole = list(answer.text(TextStyle(True, False)))
    assert list(answer.text(TextStyle(True, False, 80, True, wraps=True))) == whole
    lines = list(answer.text(TextStyle(True, False, 50, True, wraps=True)))
    assert lines[0].split() == ["address", "size", "status", "arena"]
    assert max(map(len, lines)) <= 50 and lines[-1].startswith("Hidden: chunk, usable") and len(lines) == len(whole) + 1
    assert list(answer.text(TextStyle(True, False, 50, True))) == whole


def test_text_says_how_many_more_there_are() -> None:
    """One line a chunk below the heads; a dash where there is no header or no arena."""
    style = TextStyle(True, False)
    lines = list(pages.answer_chunks([Glibc(), Jemalloc()], EVERYTHING._replace(limit=2)).text(style))
    assert len(lines) == 4 and lines[0].split() == ["address", "chunk", "size", "usable", "status", "arena"]
    assert lines[1].split() == ["0x0000000000001010", "0x0000000000001000", "32", "24", "used", "0"] and hints.strip_targets(lines[3]) == "... 4 more chunks: --limit 6"
    whole = list(pages.answer_chunks([Glibc(), Jemalloc()], EVERYTHING).text(style))
    assert len(whole) == 7 and whole[4].split()[-1] == "-" and whole[5].split()[1] == "-"


class Row(NamedTuple):
    """A row with a figure that may be unknown."""

    blocks: int
    size_bytes: Optional[int]


def test_an_unknown_whole_number_makes_no_floats() -> None:
    """A column of whole numbers stays one where some are unknown: they are NA, and 2**60 + 1 is not rounded."""
    pytest.importorskip("pandas")
    frame = encodings.make_pandas([Row(1, None), Row(2, (1 << 60) + 1)])
    assert str(frame["size_bytes"].dtype) == "Int64" and str(frame["blocks"].dtype) == "int64"
    assert frame["size_bytes"].isna().tolist() == [True, False] and int(frame["size_bytes"][1]) == (1 << 60) + 1


class RateRow(NamedTuple):
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
    value = {1: RateRow(TargetAddress(0x7F00), (1, 2)), "more": [RateRow(None, {3})], "made": (one for one in "ab"), "step": StepSentence("trim", "gives")}
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
