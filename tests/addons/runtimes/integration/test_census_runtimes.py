"""`census` of runtimes whose blocks are told by one row each: what they say of themselves is what is found."""

import re
import shutil
import subprocess
from typing import Any, Dict

import pytest

from tests.support.javas import JAVA
from tests.support.processes import Process, Stage
from tests.support.tool import alone

pytestmark = pytest.mark.once  # programs that nobody here wrote; the rows are the tool's own

STILL = ("Symbol", "Module", "Other", "Metaspace")
"""Kinds of memory that neither the JIT nor jcmd itself takes between two looks."""


def rows(process: Process) -> Dict[str, Any]:
    """By signature."""
    return {row["signature"]: row for row in alone(process.target("live"), "census", "--json").envelope["data"]["rows"]}


def test_java(stage: Stage) -> None:
    """Blocks by the tag in their headers are as many as jcmd says."""
    if not shutil.which("java") or not shutil.which("jcmd"):
        pytest.skip("java and jcmd are not installed")
    folder = stage.folder()
    (folder / "Big.java").write_text(JAVA)
    command = ["java", "-Xmx256m", "-XX:NativeMemoryTracking=summary", "Big.java"]
    process = stage.spawn_ready(command, folder)
    found = rows(process)
    told = subprocess.run(["jcmd", str(process.pid), "VM.native_memory", "summary", "scale=b"], capture_output=True, text=True).stdout
    counts = dict(re.findall(r"- +([A-Z][A-Za-z ]+?) \(reserved.*\n(?:(?! *-).*\n)*? +\(malloc=\d+ #(\d+)\)", told))
    for name in STILL:
        assert found["NMT " + name]["blocks"] == int(counts[name]), (name, told)
    named = sum(row["bytes"] for row in found.values() if row["module"] == "jvm")
    assert named >= sum(row["bytes"] for row in found.values()) * 0.9


def test_perl(stage: Stage) -> None:
    """Arenas of heads hold the program's scalars."""
    if not shutil.which("perl"):
        pytest.skip("perl is not installed")
    process = stage.spawn_ready(["perl", "-e", '$| = 1; @kept = map { [$_] } 1 .. 50000; print "ready\\n"; sleep 1000'])
    arenas = rows(process)["arena of 170 SV heads"]["blocks"]
    assert 150_000 <= 170 * arenas <= 250_000  # an array, a reference to it and a number each
