"""Cores as systemd-coredump and apport leave them: the same answers as from the core itself, and nothing is left behind."""

import gzip
import os
import signal
import subprocess
import zlib
from pathlib import Path
from typing import Iterator, Sequence, Tuple

import pytest

from tests.support.builders.packed import PACKERS, pack
from tests.support.glibc import check_identity
from tests.support.paths import GDB
from tests.support.processes import Lasting, Stage
from tests.support.tool import TOOL_SECONDS, Outcome, alone, heapx, run, tool_command, tool_environment

pytestmark = pytest.mark.image  # its Python and libraries unpack; its gdb inherits the file

RECORDER = ("recorder", "9", "1000", "3")
WAYS = (("--gdb", "none"), ("--gdb", GDB))


@pytest.fixture
def packed(lasting: Lasting, core: str, folder: Path) -> "Tuple[Path, Path]":
    """A core, and the same as .gz, under a name that does not say so."""
    whole = lasting.of(core, Stage.start, *RECORDER).core()
    path = folder / "core.of-something"
    path.write_bytes(pack(".gz", whole.read_bytes()))
    return whole, path


def one_line(outcome: Outcome) -> str:
    """The error: exit code 1, one line."""
    assert outcome.code == 1 and outcome.stderr.count("\n") == 1, (outcome.code, outcome.stderr)
    return outcome.stderr


@pytest.mark.parametrize("name", sorted(PACKERS))
def test_the_same_answers(lasting: Lasting, core: str, folder: Path, name: str) -> None:
    """Inside gdb and without; the core goes by the name that the user gave, and the folder of temporary files is empty afterwards."""
    process = lasting.of(core, Stage.start, *RECORDER)
    whole = process.core()
    path, temporary = folder / "core.of-something", folder / "temporary"
    temporary.mkdir()
    path.write_bytes(pack(name, whole.read_bytes()))
    env = {"TMPDIR": str(temporary)}
    for way in WAYS:
        outcome = heapx([*way, "--core", str(path)], "arenas", "--json", env=env)
        of_core = heapx([*way, "--core", str(whole)], "arenas", "--json")
        check_identity(outcome.data)
        assert outcome.data == of_core.data
        assert outcome.envelope["target"] == {**of_core.envelope["target"], "core": str(path), "time": outcome.envelope["target"]["time"]}
    assert list(temporary.iterdir()) == []


def test_what_was_never_touched_is_not_counted(packed: "Tuple[Path, Path]") -> None:
    """The holes of a core are lost when it is packed; a page of zeros counts as one of them, so `report` counts no more than before."""
    whole, path = packed
    reports = [alone(["--core", str(one)], "report", "--json").data for one in (whole, path)]
    totals = [sum(part["dumped_bytes"] for part in one["split"]) for one in reports]
    assert totals[0] * 0.75 < totals[1] <= totals[0] < whole.stat().st_size / 2


@pytest.mark.parametrize("way", WAYS, ids=" ".join)
def test_a_cut_file(packed: "Tuple[Path, Path]", way: Sequence[str]) -> None:
    """What is there is read; the answer is partial, and doctor says what is missing."""
    _, path = packed
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    outcome = heapx([*way, "--core", str(path)], "doctor", "--json")
    told = [problem for problem in outcome.envelope["problems"] if problem["code"] == "core-truncated"]
    assert outcome.code == 4 and len(told) == 2 and str(path) in told[0]["what"]


@pytest.mark.parametrize("where", ["middle", "end"])
def test_a_file_whose_check_sum_is_wrong(packed: "Tuple[Path, Path]", where: str) -> None:
    """Damage that still unpacks is found by the check sum behind the data: everything is shown, and that it may be wrong. In the middle
    of it even the headers may be lost."""
    _, path = packed
    data = bytearray(path.read_bytes())
    changed = bytearray(data)
    changed[-6] ^= 0x55  # the check sum itself
    if where == "middle":  # a bit of a distance between zeros changes nothing
        changed = next(one for one in damaged(data) if not same(data, one))
    path.write_bytes(bytes(changed))
    outcome = alone(["--core", str(path)], "doctor", "--json")
    found = [one for one in outcome.envelope["problems"] if one["code"] == "core-truncated"]
    assert (outcome.code == 4 and found) or (where == "middle" and outcome.code == 1)


def damaged(data: bytearray) -> Iterator[bytearray]:
    """The file with another byte of its second half changed each time."""
    for at in range(len(data) // 2, len(data)):
        yield data[:at] + bytes([data[at] ^ 0x55]) + data[at + 1 :]


def same(data: bytearray, changed: bytearray) -> bool:
    """Both unpack, to the same."""
    try:
        return gzip.decompress(bytes(changed)) == gzip.decompress(bytes(data))
    except (OSError, EOFError, zlib.error):
        return False


@pytest.mark.parametrize("way", WAYS, ids=" ".join)
def test_no_room(packed: "Tuple[Path, Path]", folder: Path, way: Sequence[str]) -> None:
    """A limit on the size of files stands for a full disk: one line, with JSON an envelope too, and nothing is left."""
    _, path = packed
    temporary = folder / "temporary"
    temporary.mkdir()
    words = [*tool_command(), "--core", str(path), *way, "arenas", "--json"]
    limited = ["sh", "-c", 'ulimit -f 2048; exec "$@"', "sh", *words]
    outcome = run(limited, env={"TMPDIR": str(temporary)})
    assert str(temporary) in one_line(outcome) and "TMPDIR" not in outcome.envelope["target"] and outcome.envelope["data"] is None
    assert list(temporary.iterdir()) == []


def test_a_folder_that_is_not_there(packed: "Tuple[Path, Path]") -> None:
    """TMPDIR is named."""
    assert "/nowhere" in one_line(alone(["--core", str(packed[1])], "arenas", env={"TMPDIR": "/nowhere"}))


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGKILL"])
def test_a_signal_while_it_is_unpacked(stage: Stage, core: str, folder: Path, name: str) -> None:
    """Nothing is left in the folder of temporary files, which had no name in it at any time."""
    path, temporary = folder / "core.gz", folder / "temporary"
    temporary.mkdir()
    head = stage.start("untouched").core().read_bytes()[:4096]
    os.mkfifo(folder / "slow")
    path.write_bytes(pack(".gz", head + os.urandom(1 << 24)))
    env = tool_environment({"TMPDIR": str(temporary), "PYTHONPATH": "%s:%s" % (folder, tool_environment()["PYTHONPATH"])})
    (folder / "sitecustomize.py").write_text(
        "import os\nput = os.pwrite\ndef slow(*given):\n    open(%r).read()\n    return put(*given)\nos.pwrite = slow\n" % str(folder / "slow")
    )  # it waits where it would write
    with subprocess.Popen([*tool_command(), "--core", str(path), "--gdb", "none", "arenas"], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as tool:
        gate = os.open(folder / "slow", os.O_WRONLY)  # opens when the tool waits
        assert list(temporary.iterdir()) == []
        tool.send_signal(getattr(signal, name))
        _, errors = tool.communicate(timeout=TOOL_SECONDS)
        os.close(gate)
    assert list(temporary.iterdir()) == [] and b"Traceback" not in errors
    assert (tool.returncode, errors.count(b"\n")) == ((-signal.SIGKILL, 0) if name == "SIGKILL" else (1, 1))
