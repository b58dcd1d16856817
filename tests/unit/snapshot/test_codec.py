"""What a snapshot's codec writes is read again, also graphs."""

import json
from types import SimpleNamespace
from typing import Any, Dict, Mapping, NamedTuple, Optional, Sequence, Tuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gdbheapx.allocators.records import HeapArenas
from gdbheapx.analysis.census import find
from gdbheapx.analysis.census.find import Census, CensusRow, Copies, Managed, Same
from gdbheapx.analysis.overview import Overview
from gdbheapx.analysis.pins import PinsAnswer
from gdbheapx.analysis.reachability import dominance
from gdbheapx.analysis.reachability.leaks import Leaks
from gdbheapx.analysis.reachability.owners import Owners
from gdbheapx.common.errors import HeapxError
from gdbheapx.common.model import AllocatorInfo, TargetAddress
from gdbheapx.common.units import SentenceSize, make_sentence
from gdbheapx.snapshot import container, graph
from gdbheapx.snapshot.record import RecordedOutcome, SnapshotHead
from tests.support.builders.records import glibc_arena, jemalloc_arena
from tests.support.searches import search


class Leaf(NamedTuple):
    """Every sort of member."""

    address: TargetAddress
    name: Optional[str]
    share: float
    is_old: bool
    pair: Tuple[int, int] = (0, 0)
    sums: Mapping[str, int] = {}


class Tree(NamedTuple):
    """A record with records in it."""

    leaves: Sequence[Leaf]
    children: Sequence["Tree"] = ()


leaves = st.builds(
    Leaf,
    st.integers(0, 2**64 - 1).map(TargetAddress),
    st.none() | st.text(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.booleans(),
    st.tuples(st.integers(), st.integers()),
    st.dictionaries(st.text(), st.integers()),
)
trees = st.recursive(st.builds(Tree, st.lists(leaves), st.just([])), lambda inner: st.builds(Tree, st.lists(leaves, max_size=2), st.lists(inner, max_size=3)))


@search(100)
@given(trees)
def test_a_record_comes_back_as_it_was(tree: Tree) -> None:
    """By JSON; addresses are addresses again."""
    found = container.decode_value(Tree, json.loads(json.dumps(container.encode_value(tree))))
    assert found == tree and all(isinstance(one.address, TargetAddress) for one in found.leaves)


@pytest.mark.parametrize(
    "kind, value",
    [
        (int, "1"),
        (int, True),
        (int, 1.5),
        (str, 1),
        (str, {"text": "a"}),
        (str, {"text": "a", "plain": 1}),
        (bool, 1),
        (float, "nan"),
        (Optional[int], "x"),
        (Sequence[int], {"a": 1}),
        (Sequence[int], [1, None]),
        (Tuple[int, int], [1, 2, 3]),
        (Dict[str, int], [1]),
        (Leaf, []),
        (Leaf, {"address": 1}),
        (Tree, {"leaves": [{"address": "here", "name": None, "share": 1.0, "is_old": False}]}),
    ],
)
def test_what_is_something_else_is_refused(kind: Any, value: Any) -> None:
    """Nothing is read as what it is not."""
    with pytest.raises(container.WrongValue):
        container.decode_value(kind, value)


def test_versions_may_differ() -> None:
    """A later member is left out, one that is lacking has its default."""
    found = container.decode_value(Leaf, {"address": 5, "name": None, "share": 1, "is_old": False, "later": [1]})
    assert found == Leaf(TargetAddress(5), None, 1.0, False)


@pytest.mark.parametrize("kind", [Census, Copies, Managed, CensusRow, Same, PinsAnswer, Leaks, Owners, SnapshotHead, RecordedOutcome, Overview, HeapArenas])
def test_types_of_models_are_kept(kind: Any) -> None:
    """Every member of what a snapshot keeps has a type that can be read back: what is no record fails by value, not by type."""
    with pytest.raises(container.WrongValue, match="where something else belongs"):
        container.decode_value(kind, [])


@pytest.mark.parametrize("row", [glibc_arena(3, used_bytes=5), jemalloc_arena(2, blind_threads=None)])
def test_an_allocators_own_record_comes_back(row: Any) -> None:
    """Which of them it is follows from its members; a record of none is refused."""
    made = HeapArenas(AllocatorInfo("a", "a", None, "a.so", None, None, None, True), [row], {"used_bytes": 5})
    found = container.decode_value(HeapArenas, json.loads(json.dumps(container.encode_value(made))))
    assert found == made and type(found.rows[0]) is type(row) and isinstance(found.rows[0].address, TargetAddress)
    with pytest.raises(container.WrongValue):
        container.decode_value(HeapArenas, {**container.encode_value(made), "rows": [{"index": 1}]})


def test_what_has_no_type_keeps_its_sentences() -> None:
    """Of a value of any type both forms of a sentence come back; all else is as json has it."""
    sentence = make_sentence("%s of it", SentenceSize(5 << 20))
    found = container.decode_value(Any, json.loads(json.dumps(container.encode_value({"a": [sentence, 1, None], "b": {"text": 1}}))))
    assert found == {"a": [sentence, 1, None], "b": {"text": 1}} and found["a"][0].plain == sentence.plain


@pytest.mark.parametrize("error", [HeapxError("stopped after --max-seconds 1", "give it more time"), ValueError("too many blocks")])
def test_a_graph_that_cannot_be_made_leaves_the_rest(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    """The file is without it, and the answer partial: what else was found stays."""
    told = []

    def refuse(*given: Any) -> None:
        raise error

    monkeypatch.setattr(dominance, "tally_owners", refuse)
    session: Any = SimpleNamespace(
        shared=lambda name: SimpleNamespace(reach=None, called=None, paths=None) if name == find.TOLD else None,
        budget=SimpleNamespace(progress=SimpleNamespace(stage="")),
        problem=lambda *words, **more: told.append((words, more)),
    )
    assert graph.keep_graph(session, [], True) == (None, {})
    (words, more), hint = told[0], getattr(error, "hint", None)
    assert words[2:] == ("the graph of blocks is not in the snapshot: %s" % error, hint) and more.get("partial", True) and len(told) == 1
