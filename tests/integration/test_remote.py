"""A process behind gdbserver gives the answer it gives when it is attached to directly.

Files: inferior/gdb/inferior.py, inferior/gdb/target.py, inferior/gdb/target.py.
"""

from pathlib import Path
from typing import List, Sequence

import pytest

from tests.support.gdbserver import Server, remote_answers, resident_figures, without_resident
from tests.support.glibc import check_identity
from tests.support.processes import Stage
from tests.support.tool import answers, heapx

pytestmark = pytest.mark.image  # its gdb and gdbserver

COMMANDS = ("arenas", "chunks", "chunks --histogram", "bins", "tcache", "malloc-info", "malloc-stats", "tunables", "trim --dry-run")


CASES = {
    "threads": (("recorder", "5", "300", "3"), COMMANDS),
    "sbrk": (("accounts", "sbrk"), COMMANDS),
    "subheaps": (("accounts", "subheaps"), ("arenas",)),  # a hundred megabytes in packets of 16 KiB
}


@pytest.mark.parametrize("arguments, commands", CASES.values(), ids=CASES)
def test_remote_equals_native(stage: Stage, servers: List[Server], arguments: Sequence[str], commands: Sequence[str]) -> None:
    """Every command's data through `target remote` equals the native data; what is in RAM is null there, and the answer is whole."""
    process = stage.start(*arguments)
    native = answers(["--pid", str(process.pid)], process.folder, *commands)
    remote = remote_answers(servers, process, commands)
    for command, mine, theirs in zip(commands, native, remote):
        assert theirs["target"]["kind"] == "remote" and theirs["target"]["pid"] == process.pid
        assert theirs["target"]["stopped_ms"] is None
        assert theirs["partial"] is False, (command, theirs["problems"])
        assert without_resident(theirs["data"]) == without_resident(mine["data"]), command
        assert set(resident_figures(theirs["data"])) <= {None}, command
        assert theirs["allocators"] == mine["allocators"]
    check_identity(remote[0]["data"])


def test_remote_without_the_targets_files(stage: Stage, servers: List[Server], folder: Path) -> None:
    """With an empty sysroot gdb has none of the target's files; libc's debug file, found by the build-id in memory, is enough."""
    process = stage.start("recorder", "3", "500", "3")
    native = heapx(["--pid", str(process.pid)], "arenas", "--json").data
    (remote,) = remote_answers(servers, process, ["arenas"], "-ex", "set sysroot %s" % folder)
    assert remote["partial"] is False, remote["problems"]
    assert without_resident(remote["data"]) == without_resident(native)
