"""A tool that may not do what is asked of it: refused at once, by the capability that really lacks, with nothing stopped."""

import os
import shutil
import time
from typing import List

import pytest

from gdbheapx.inferior.live import procfs
from tests.support.busy import stretch
from tests.support.processes import Process, Stage
from tests.support.tool import run, tool_command
from tests.support.victims import check_free, refusal

pytestmark = pytest.mark.once  # the kernel's rules of permission

LACKS = os.geteuid() != 0 or not shutil.which("setpriv")
needs_root = pytest.mark.skipif(LACKS, reason="root and setpriv are needed to give capabilities up")
UID = 61234
AS_OTHER = ["setpriv", "--reuid", str(UID), "--regid", str(UID), "--clear-groups"]
SOON_S = 20
"""The process used to stand still for 75 s."""


def of_another_user(stage: Stage) -> Process:
    """A heap that a trim returns much of, of a user who is not root."""
    folder, program = stage.folder(), stage.builder.build("trimmer")
    os.chown(folder, UID, UID)
    copy = folder / "trimmer"
    shutil.copy(program, copy)
    copy.chmod(0o755)
    return stage.spawn_ready([*AS_OTHER, str(copy), str(folder / "record"), "main"], folder, None, folder / "record")


def with_only(capabilities: List[str], process: Process, *words: str) -> List[str]:
    """The tool as root with these capabilities."""
    bounding = ",".join(["-all", *("+" + one for one in capabilities)])
    return ["setpriv", "--inh-caps=-all", "--bounding-set=" + bounding, *tool_command(), "--pid", str(process.pid), *words]


@needs_root
def test_trim_without_the_right_to_write(stage: Stage, live: str) -> None:
    """Who may read and not write is refused before anything is stopped, and told which capability lacks; the dry run says so too."""
    process = of_another_user(stage)
    began = time.monotonic()
    outcome = run(with_only(["sys_ptrace", "dac_read_search"], process, "trim", "--yes", "--json"))
    line = refusal(outcome)
    assert "CAP_DAC_OVERRIDE is missing" in line and "--user %d:%d" % (UID, UID) in line and "damage" not in line
    assert outcome.envelope["target"]["stopped_ms"] is None and time.monotonic() - began < stretch(SOON_S)
    dry = run(with_only(["sys_ptrace", "dac_read_search"], process, "trim", "--dry-run", "--json")).envelope
    assert "call-refused" in [one["code"] for one in dry["problems"]] and dry["data"]["predicted_bytes"] > 1 << 20
    check_free(process)
    assert run(with_only(["sys_ptrace", "dac_override", "sys_admin"], process, "trim", "--yes", "--json")).data["returned"] == 1
    process.command(b"t")


@needs_root
@pytest.mark.parametrize(
    "given, lacking",
    [(["sys_ptrace"], ["DAC_READ_SEARCH"]), (["dac_read_search"], ["SYS_PTRACE"]), (["dac_override"], ["SYS_PTRACE"]), ([], ["SYS_PTRACE", "DAC_READ_SEARCH"])],
)
def test_what_lacks_is_named(stage: Stage, live: str, given: List[str], lacking: List[str]) -> None:
    """Exactly the capabilities that are missing, as options of a container; or the program's own user, who needs none."""
    process = of_another_user(stage)
    line = refusal(run(with_only(given, process, "arenas")))
    assert " and ".join("CAP_" + one for one in lacking) + (" is" if len(lacking) == 1 else " are") + " missing" in line
    assert [word for word in line.replace(",", "").split() if word.startswith("--cap-add")] == ["--cap-add=" + one for one in lacking]
    assert "--user %d:%d" % (UID, UID) in line
    assert all("--cap-add=" + one.upper() not in line for one in given)
    check_free(process)


@needs_root
def test_who_is_not_root_is_told_what_root_needs(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """The image runs as an ordinary user, and has no sudo: the options of a container, or the program's own user."""
    process = of_another_user(stage)
    monkeypatch.setattr(os, "geteuid", lambda: UID + 1)
    monkeypatch.setattr(procfs, "read_capabilities", lambda: 0)
    hint = procfs.why_not_permitted(process.pid).hint or ""
    assert "with sudo" in hint and "--user 0 --cap-add=SYS_PTRACE --cap-add=DAC_READ_SEARCH" in hint
    assert "--user %d:%d" % (UID, UID) in hint
