"""A plugin of pytest: counts the statements of the product that unit tests run in their own process, one table at the end: `make coverage`.

It comes by PYTEST_PLUGINS, so that each worker has it before its first import of the product. It traces unit tests alone, not those marked
slow, so that `make test` can count while it runs all others at their speed.
"""

import json
import os
import shutil
from collections import Counter
from pathlib import Path
from typing import Any, Iterator, List

import coverage
import pytest
from tabulate import tabulate

ROOT = Path(__file__).resolve().parent.parent
UNIT = ROOT / "tests" / "unit"
FOLDER = ROOT / "build" / "covered"


def measure(**options: Any) -> coverage.Coverage:
    """Data of this folder, about the product."""
    return coverage.Coverage(data_file=str(FOLDER / "data"), config_file=False, source=[str(ROOT / "gdbheapx"), str(ROOT / "commands")], **options)


class Covered:
    """In a process that runs tests: imports and unit tests are traced."""

    def __init__(self) -> None:
        self.run = measure(data_suffix=True)
        self.traces = False
        self.trace(True)

    def trace(self, wanted: bool) -> None:
        """Trace from now on, or not."""
        if wanted != self.traces:
            self.run.start() if wanted else self.run.stop()
            self.traces = wanted

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """The same tracing for all unit tests in a row."""
        self.trace(UNIT in item.path.parents and not item.get_closest_marker("slow"))
        yield

    def pytest_sessionfinish(self) -> None:
        """A file for each process."""
        self.trace(False)
        self.run.save()


class Table:
    """In the process that the tests were asked of: the sums of all."""

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """One line for each folder."""
        whole = measure()
        whole.combine()
        report = FOLDER / "report.json"
        whole.json_report(outfile=str(report))
        terminalreporter.write_line(table(json.loads(report.read_text())))


def table(report: Any) -> str:
    """The sums of a report in JSON."""
    statements, run = Counter(), Counter()  # type: Counter[str], Counter[str]
    for path, file in report["files"].items():
        for folder in ("/".join(path.split("/")[:-1][:2]), "all"):
            statements[folder] += file["summary"]["num_statements"]
            run[folder] += file["summary"]["covered_lines"]
    folders = [*sorted(folder for folder in statements if folder != "all"), "all"]
    rows = [(folder, statements[folder], "%.0f %%" % (100 * run[folder] / max(1, statements[folder]))) for folder in folders]
    return tabulate(rows, ["folder", "statements", "run by the unit tests"], colalign=("left", "right", "right"))


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config, args: List[str]) -> None:
    """Before conftest.py imports the product."""
    is_worker = "PYTEST_XDIST_WORKER" in os.environ
    has_workers = not is_worker and any(word.startswith(("-n", "--numprocesses")) for word in args)
    if not is_worker:
        shutil.rmtree(FOLDER, ignore_errors=True)
        FOLDER.mkdir(parents=True)
        early_config.pluginmanager.register(Table())
    if not has_workers:
        os.environ.pop("PYTEST_PLUGINS", None)  # a pytest that a test starts counts nothing
        early_config.pluginmanager.register(Covered())
