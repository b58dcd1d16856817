"""Programs that malloc itself has ended: check finds in the core what malloc said, word for word."""

import resource
import subprocess
from pathlib import Path

import pytest

from tests.support import kernelcore
from tests.support.processes import Builder
from tests.support.tool import alone

pytestmark = pytest.mark.image  # the messages are those of the image's libc

KINDS = ("unsorted-size", "unsorted-links", "prev-size", "top-size", "double-free")


def unlimited() -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


@pytest.mark.parametrize("kind", KINDS)
def test_malloc_said_so(builder: Builder, tmp_path: Path, kind: str) -> None:
    """One of the findings has the message with which the process ended; it is sure, although malloc held its lock."""
    if kernelcore.reason():
        pytest.skip(kernelcore.reason() or "")
    ended = subprocess.run([str(builder.build("aborts")), kind], cwd=tmp_path, preexec_fn=unlimited, capture_output=True, text=True)
    if ended.returncode != -6:
        pytest.skip("this libc does not notice")
    found = sorted(tmp_path.glob("*core*"))
    assert found, "no core"
    outcome = alone(["--core", str(found[0])], "check", "--json")
    findings = outcome.envelope["data"]["findings"]
    said = ended.stderr.strip().splitlines()[-1]
    assert outcome.code == 3 and all(row["evidence"] is None for row in findings)
    report = alone(["--core", str(found[0])], "report", "--json").envelope["data"]
    assert "aborted-in-malloc" in [one["code"] for one in report["findings"]]
    assert any(row["abort"] and row["abort"] in said for row in findings), (said, [(row["rule"], row["abort"]) for row in findings])
