"""Random words in what mimalloc keeps for itself: every command answers in time and in words, and no sum that is wrong is told as whole."""

import time
from pathlib import Path
from typing import Any, Iterator, Tuple

import pytest

from tests.support import kernelcore
from tests.support.busy import stretch
from tests.support.damaged_mimalloc import DamagedMimalloc
from tests.support.mimallocs import LACKING, adds_up, libraries, recorder
from tests.support.processes import Builder, Stage

pytestmark = pytest.mark.once  # the rules by which damage is told are the tool's own

SEEDS = [range(8), pytest.param(range(8, 300), marks=pytest.mark.wild)]
LONGEST_SECONDS = 30


@pytest.fixture(scope="module", params=libraries() or [None], ids=lambda path: "none" if path is None else path.name)
def hurt(builder: Builder, request: pytest.FixtureRequest) -> Iterator[DamagedMimalloc]:
    """A core of each library."""
    if kernelcore.reason() or request.param is None:
        pytest.skip(kernelcore.reason() or LACKING)
    path: Path = request.param
    stage = Stage(builder)
    try:
        yield DamagedMimalloc(recorder(stage, path, slots=200).core())
    finally:
        stage.close()


def sums(rows: Any) -> Tuple[int, ...]:
    """Blocks and bytes that are in use or wait for their owner, and bytes that are free."""
    names = (("used_blocks", "remote_free_blocks"), ("used_bytes", "remote_free_bytes"), ("free_bytes",))
    return tuple(sum(row[name] for row in rows for name in some) for some in names)


def asked(core: DamagedMimalloc, seed: int, *words: str) -> Any:
    """The answer, which came in time."""
    begin = time.monotonic()
    try:
        told = core.ask(*words)
    except Exception as error:
        raise AssertionError("seed %d, %s: %s: %s" % (seed, words, type(error).__name__, error)) from error
    assert time.monotonic() - begin < stretch(LONGEST_SECONDS), (seed, words)
    assert told.code in (0, 1, 3, 4) and "internal error" not in (told.line or ""), (seed, words, told.code, told.line)
    return told


@pytest.mark.parametrize("seeds", SEEDS, ids=["few", "many"])
def test_no_wrong_sum_is_whole(hurt: DamagedMimalloc, seeds: range) -> None:
    """Sums add up whatever is damaged; where they are others than before, the answer says that it is not whole. What other threads have freed
    counts as in use here: an empty list of these is nothing that could not be, and no more is whose a page is."""
    sound = sums(hurt.ask("arenas", "--allocator", "mimalloc").envelope["data"]["arenas"])
    for seed in seeds:
        try:
            hurt.harm(seed)
            told = asked(hurt, seed, "arenas", "--allocator", "mimalloc")
            if told.code != 1:
                rows = told.envelope["data"]["arenas"]
                adds_up(rows)
                assert sums(rows) == sound or told.envelope["partial"], seed
            for words in (["check"], ["bins"], ["chunks", "--limit", "5"], ["leaks"], ["report"], ["doctor"]):
                asked(hurt, seed, *words)
        finally:
            hurt.heal()
