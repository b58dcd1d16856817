"""The other programs of the suite, live and as cores: told alike."""

from typing import Sequence

import pytest

from tests.support.gcores import gcore
from tests.support.processes import Stage
from tests.support.sameness import MORE_PROGRAMS, told

pytestmark = pytest.mark.wild  # many programs, three looks at each


@pytest.mark.parametrize("name, arguments", MORE_PROGRAMS, ids=lambda one: one if isinstance(one, str) else "-".join(one))
def test_the_same_is_told(stage: Stage, name: str, arguments: Sequence[str]) -> None:
    """As test_live_and_core of the integration tests."""
    process = stage.start(name, *arguments)
    live = told(process.target("live"))
    by_gdb = told(["--core", str(gcore(process))])
    assert {**by_gdb, "mappings": live["mappings"]} == live  # gdb writes down of reserved addresses that they can be read
    assert told(process.target("core")) == live
