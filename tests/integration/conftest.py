"""Fixtures of several modules of this folder."""

from typing import Iterator, List

import pytest

from tests.support import jemallocs
from tests.support.damaged_jemalloc import Patient
from tests.support.gdbserver import Server
from tests.support.processes import Stage
from tests.support.programs import need


@pytest.fixture
def servers(live: str) -> Iterator[List[Server]]:
    """gdbservers that end with the test; skips where gdbserver is not installed."""
    need("gdbserver")
    made = []  # type: List[Server]
    yield made
    for server in made:
        server.end()


@pytest.fixture(scope="module")
def made(core_stage: Stage) -> Iterator[Patient]:
    """One core of a program on jemalloc for all cases of a module."""
    patient = Patient(jemallocs.start(core_stage, "preload", "recorder", "park", "4", "2").core())
    yield patient
    patient.close()


@pytest.fixture
def patient(made: Patient) -> Iterator[Patient]:
    """The core, healthy again afterwards."""
    yield made
    made.heal()
