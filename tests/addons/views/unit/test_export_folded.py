"""Folded stacks, and profiles for pprof read back by the field numbers of profile.proto and by `go tool pprof`.

Files: analysis/census/owned.py, addons/views/export.py.
"""

import re
import subprocess
from pathlib import Path
from typing import Iterator, List, Optional, Sequence

import pytest

from gdbheapx.addons.views import export as pprof
from gdbheapx.addons.views.query import csv_rows
from gdbheapx.analysis.census import owned
from gdbheapx.analysis.census.owned import NO_PATH, SMALL_FRAME, CodeImage, FlameFrame, OwnerFrame, OwnerPaths, OwnerStack
from tests.support import profiles
from tests.support.hostile import HOSTILE
from tests.support.programs import need

pytestmark = pytest.mark.once  # no memory, and nothing of the machine

def lines(stacks: List[OwnerStack]) -> List[str]:
    return list(csv_rows.format_folded(stacks))


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_name_is_one_frame(name: str) -> None:
    """One line, two frames, one number, UTF-8."""
    (line,) = lines([OwnerStack((OwnerFrame("outer"), OwnerFrame(name)), 1, 4096)])
    assert line.encode("utf-8").decode("utf-8").isprintable()
    stack, number = line.rsplit(" ", 1)
    assert number == "4096" and len(stack.split(";")) == 2
    assert not re.search(r"\s[0-9.]+$", stack), "the number before it would be taken for that of another profile"


def test_escapes_have_the_byte() -> None:
    """`;` and a byte that is no UTF-8 can be told from what is shown."""
    assert csv_rows.format_folded_frame("a;b") == "a\\x3bb" and csv_rows.format_folded_frame(b"\xff".decode("utf-8", "surrogateescape")) == "\\xff"
    assert csv_rows.format_folded_frame("size 12") == "size\\x2012"


def test_inferno_draws_hostile_names() -> None:
    """No frame becomes markup, and each is there."""
    program = need("inferno-flamegraph")
    text = "".join(line + "\n" for line in lines([OwnerStack((OwnerFrame("outer"), OwnerFrame(name)), 1, 4096) for name in HOSTILE if name]))
    drawn = subprocess.run([program, "--minwidth", "0"], input=text.encode(), stdout=subprocess.PIPE, check=True).stdout.decode()
    assert "<script>alert" not in drawn and "&lt;script&gt;alert" in drawn and "\x1b" not in drawn
    assert drawn.count("4,096 samples") == len(HOSTILE) - 1


def test_small_frames_are_put_together_and_no_byte_is_lost() -> None:
    """What is under a ten-thousandth has no frame of its own; equal frames in a row are one."""
    paths = OwnerPaths()
    large = paths.below(NO_PATH, OwnerFrame("large"))
    small = paths.below(large, OwnerFrame("small"))
    deep = paths.below(small, OwnerFrame("deep"))
    assert paths.below(large, OwnerFrame("large")) == large
    for path, size in ((large, 1_000_000), (small, 3), (deep, 4), (paths.below(large, OwnerFrame("tiny")), 5)):
        paths.blocks[path] += 1
        paths.bytes[path] += size
    found = {tuple(frame.name for frame in one.frames): (one.blocks, one.bytes) for one in paths.stacks()}
    assert found == {("large",): (1, 1_000_000), ("large", SMALL_FRAME.name): (3, 12)}


def test_a_stack_ends_somewhere() -> None:
    """Of a chain without end the last frame has the rest."""
    paths, path = OwnerPaths(), NO_PATH
    for number in range(3 * owned.MOST_FRAMES):
        path = paths.below(path, OwnerFrame("frame %d" % number))
        paths.blocks[path] += 1
        paths.bytes[path] += 16
    found = paths.stacks()
    assert max(len(one.frames) for one in found) == owned.MOST_FRAMES
    assert sum(one.bytes for one in found) == 3 * owned.MOST_FRAMES * 16


def test_a_flame_graph_has_the_bytes_of_the_stacks() -> None:
    """Frames of one part in 500 and more, the largest first; their small neighbours are one frame that says how many they are. No more
    than so many frames, of the largest; what stands on one is never more than it."""
    paths = OwnerPaths()
    large = paths.below(NO_PATH, OwnerFrame("large", "libc"))
    for number in range(2000):
        path = paths.below(large, OwnerFrame("part %d" % number))
        paths.bytes[path], paths.blocks[path] = 10 + number % 7, 1
    paths.bytes[large], paths.blocks[large] = 100_000, 3
    for number in range(30):
        path = paths.below(paths.below(NO_PATH, OwnerFrame("top %d" % number)), OwnerFrame("on it"))
        paths.bytes[path], paths.blocks[path] = 4000 - number, 2
    frames = paths.flame()
    assert [(frame.owner, frame.module, frame.others) for frame in frames[:2]] == [("large", "libc", 0), ("top 0", "", 0)] and len(frames) == 31
    assert [(frame.owner, frame.others, frame.blocks) for frame in frames[0].frames] == [("", 2000, 2000)]
    assert sum(frame.bytes for frame in frames) == sum(paths.bytes) and sum(frame.blocks for frame in frames) == sum(paths.blocks)

    def each(some: Sequence[FlameFrame]) -> Iterator[FlameFrame]:
        for frame in some:
            assert sum(part.bytes for part in frame.frames) <= frame.bytes
            yield frame
            yield from each(frame.frames)

    many = OwnerPaths()
    for number in range(3000):
        path = many.below(many.below(NO_PATH, OwnerFrame("top %d" % (number % 300))), OwnerFrame("part %d" % number))
        many.bytes[path], many.blocks[path] = 1000, 1
    found = list(each(many.flame()))
    assert len([frame for frame in found if not frame.others]) <= owned.FLAME_FRAMES
    assert sum(frame.bytes for frame in many.flame()) == sum(many.bytes)
    assert OwnerPaths().flame() == []
    deep = path = many.below(NO_PATH, OwnerFrame("0"))
    for number in range(1, 39):
        path = many.below(path, OwnerFrame(str(number)))
    many.bytes[path] = 10**9
    at, levels = [frame for frame in many.flame() if frame.bytes == 10**9], 0
    while at:
        at, levels = list(at[0].frames), levels + 1
    assert levels == owned.FLAME_LEVELS and many.frames[deep].name == "0"


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
    assert found.samples == [profiles.Sample(("0x5010", "0x1fff", "0x2000"), 3, 1 << 40), profiles.Sample(("libx.so", "Session"), 2, 64)]
    assert found.without_mapping == 0 and found.period == 4096
    assert found.types == [("objects", "count"), ("space", "bytes")]
    assert found.mappings[1] == ("/usr/bin/prog", "ab12"), "the program is the first"
    assert {name for name, _ in found.mappings.values()} == {"/usr/bin/prog", "/usr/lib/libx.so", "[unknown]", "libx.so"}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_name_is_one_frame_of_a_profile(tmp_path: Path, name: str) -> None:
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
