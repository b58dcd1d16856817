"""Programs that nobody here wrote, on mimalloc: the system's python3, and CPython 3.13 on the copy that is in it."""

from pathlib import Path
from typing import Any, Dict, List

import pytest

from tests.support.mimallocs import adds_up, library
from tests.support.processes import Process, Stage
from tests.support.tool import alone

pytestmark = pytest.mark.image  # programs of its own, on its libmimalloc

COUNT = 3000
PROGRAM = """
import sys

class Order:
    def __init__(self, number):
        self.number, self.items = number, [str(number)]

kept = [Order(number) for number in range(%d)]
print("ready", flush=True)
sys.stdin.readline()
""" % COUNT
PYTHONS = [path for path in Path("/root/.pyenv/versions").glob("3.13*/bin/python3.13") if path.exists()]


def started(stage: Stage, python: str, env: Dict[str, str]) -> Process:
    """The program, once it is ready."""
    process = stage.spawn([python, "-c", PROGRAM], env=env)
    process.wait_ready()
    return process


def every_order_is_found(process: Process, kind: str) -> None:
    """In the census, with nothing lost and no rule broken, and sums that add up."""
    target = process.target(kind)
    rows: List[Dict[str, Any]] = [row for row in alone(target, "arenas", "--json").data["arenas"] if row["allocator"] == "mimalloc"]
    adds_up(rows)
    assert sum(row["used_blocks"] for row in rows) > 3 * COUNT
    census = alone(target, "census", "--json").data
    (orders,) = [row for row in census["rows"] if row["signature"] == "Order"]
    assert orders["blocks"] == COUNT
    assert alone(target, "leaks", "--json").data["classes"]["leaked"]["blocks"] == 0
    assert alone(target, "check", "--json").data == {"findings": []}


def test_python(stage: Stage, kind: str) -> None:
    """python3 that asks malloc for everything: each object of a class is found."""
    every_order_is_found(started(stage, "/usr/bin/python3", {"LD_PRELOAD": str(library()), "PYTHONMALLOC": "malloc"}), kind)


@pytest.mark.wild
@pytest.mark.parametrize("python", PYTHONS or [None], ids=str)
def test_the_copy_in_cpython(stage: Stage, kind: str, python: Any) -> None:
    """CPython 3.13 has mimalloc in it, changed, and uses it where it is told so."""
    if python is None:
        pytest.skip("no CPython 3.13 here")
    every_order_is_found(started(stage, str(python), {"PYTHONMALLOC": "mimalloc"}), kind)
