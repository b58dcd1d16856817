"""Profiles for pprof: read back by the field numbers of profile.proto, and by `go tool pprof`.

Files: analysis/census/owned.py, addons/views/export/pprof.py.
"""

from pathlib import Path
from typing import List, Optional

import pytest

from gdbheapx.addons.views.export import pprof
from gdbheapx.analysis.census.owned import CodeImage, OwnerFrame, OwnerStack
from tests.support import profiles
from tests.support.hostile import HOSTILE

pytestmark = pytest.mark.once  # no memory, and nothing of the machine

IMAGES = [CodeImage("/usr/bin/prog", 0x5000, 0x6000, 0x1000, "ab12"), CodeImage("/usr/lib/libx.so", 0x1000, 0x2000, 0, None)]


def written(folder: Path, stacks: List[OwnerStack], period: Optional[int] = None) -> Path:
    file = folder / "made.pb.gz"
    file.write_bytes(pprof.encode_stacks(stacks, IMAGES, period))
    return file


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    """Stacks, counts, and a mapping of each location: of code by its address, of a name by its module."""
    code = OwnerStack((OwnerFrame("", "", 0x5010), OwnerFrame("", "", 0x1FFF), OwnerFrame("", "", 0x2000)), 3, 1 << 40)
    named = OwnerStack((OwnerFrame("libx.so", "libx.so"), OwnerFrame("Session", "libx.so")), 2, 64)
    found = profiles.read(written(tmp_path, [code, named, OwnerStack((OwnerFrame("none"),), 0, 0)], 4096))
    assert found.samples == [
        profiles.Sample(("0x5010", "0x1fff", "0x2000"), 3, 1 << 40),
        profiles.Sample(("libx.so", "Session"), 2, 64),
    ]
    assert found.without_mapping == 0 and found.period == 4096
    assert found.types == [("objects", "count"), ("space", "bytes")]
    assert found.mappings[1] == ("/usr/bin/prog", "ab12"), "the program is the first"
    assert {name for name, _ in found.mappings.values()} == {"/usr/bin/prog", "/usr/lib/libx.so", "[unknown]", "libx.so"}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_name_is_one_frame(tmp_path: Path, name: str) -> None:
    """UTF-8 without control characters, in pprof's own output as well."""
    file = written(tmp_path, [OwnerStack((OwnerFrame("outer", name), OwnerFrame(name or "x", name)), 1, 4096)])
    (one,) = profiles.read(file).samples
    assert len(one.frames) == 2 and one.frames[1].isprintable()
    shown = profiles.pprof("-raw", str(file))
    assert "\x1b" not in shown and shown.count("\n   ") >= 1 and one.frames[1] in shown


def test_further_values(tmp_path: Path) -> None:
    """A type of value is there where it is known; one that nothing knows is left out, and 0 is a figure. What keeps free memory and is no
    block has a sample too."""
    stacks = [OwnerStack((OwnerFrame("a"),), 2, 3000, 1000, 0), OwnerStack((OwnerFrame("b"),), 5, 1000, 1000, 0), OwnerStack((OwnerFrame("c"),), 0, 0, 0, 0)]
    found = profiles.read(written(tmp_path, stacks))
    assert found.types == [("objects", "count"), ("space", "bytes"), ("resident_space", "bytes"), ("swapped_space", "bytes")]
    assert [one.more for one in found.samples] == [(1000, 0), (1000, 0)]
    kept = profiles.read(file := written(tmp_path, [OwnerStack((OwnerFrame("a"),), 2, 3000, kept_bytes=500), OwnerStack((OwnerFrame("[in caches]"),), 0, 0, kept_bytes=70)]))
    assert kept.types[2:] == [("fragmentation", "bytes")] and [one.more for one in kept.samples] == [(500,), (70,)]
    assert "570B total" in profiles.pprof("-top", "-unit=B", "-sample_index=fragmentation", str(file))


def test_pprof_adds_up(tmp_path: Path) -> None:
    """Its own sums of both sample types."""
    file = written(tmp_path, [OwnerStack((OwnerFrame("a"), OwnerFrame("b")), 2, 3000), OwnerStack((OwnerFrame("a"),), 5, 1000)])
    assert "4000B total" in profiles.pprof("-top", "-unit=B", str(file))
    assert "7 total" in profiles.pprof("-top", "-sample_index=objects", str(file))
