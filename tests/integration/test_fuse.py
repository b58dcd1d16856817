"""A process that maps a file of its own FUSE file system, which never answers: no command waits for it, or asks it for a page."""

import os
from typing import Tuple

import pytest

from tests.support.processes import READY_SECONDS, Process, Stage
from tests.support.tool import heapx

pytestmark = pytest.mark.once  # asks the machine's own kernel for a mount, which no image may do

FUSE_SUPPORTED = os.geteuid() == 0 and os.path.exists("/dev/fuse")


@pytest.fixture
def silent(stage: Stage) -> Process:
    """The program, serving as an ordinary user."""
    if not FUSE_SUPPORTED:
        pytest.skip("only root can mount for another user, where there is a /dev/fuse")
    folder = stage.folder()
    mount = folder / "mount"
    mount.mkdir()
    process = stage.spawn([str(stage.builder.build("fuse_mapped")), str(folder / "record"), str(mount)], folder, None, folder / "record")
    assert process.popen.stdout
    said = process.popen.stdout.readline()
    if said == b"no mount\n":
        pytest.skip("this machine lets nobody mount FUSE")
    assert said == b"mounted\n", process.stderr_path.read_text()
    return process


@pytest.mark.parametrize("words", [("arenas",), ("leaks",), ("report", "--deep")], ids=lambda words: words[0])
def test_no_page_is_asked_for(silent: Process, words: Tuple[str, ...]) -> None:
    """The answer is partial and says so; the server has seen no read."""
    outcome = heapx(silent.target("live"), *words, "--json", seconds=READY_SECONDS)
    envelope = outcome.envelope
    assert outcome.code == 4 and "mapped-file-unread" in [problem["code"] for problem in envelope["problems"]]
    assert silent.record() == b""
