"""A process under Valgrind: its malloc is Valgrind's own, which is not read."""

import shutil
import subprocess

import pytest

from tests.support.tool import heapx

pytestmark = pytest.mark.once  # which process is under Valgrind does not depend on the release


@pytest.mark.skipif(not shutil.which("valgrind"), reason="no valgrind here")
def test_owner_is_told() -> None:
    """There is no verdict, for whatever its memory looks like; doctor names the same owner."""
    words = ["valgrind", "-q", "sh", "-c", "echo ready; read word"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        try:
            assert process.stdout is not None and process.stdout.readline() == b"ready\n"
            target = ["--pid", str(process.pid)]
            report = heapx(target, "report", "--json").envelope["data"]
            assert (report["verdict"]["kind"], report["verdict"]["code"]) == ("inconclusive", "owner-unread")
            assert "Valgrind" in [row["what"] for row in heapx(target, "doctor", "--json").envelope["data"]["checks"] if row["ok"] is False]
        finally:
            process.kill()
