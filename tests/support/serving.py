"""A `serve` that runs beside a test, and what it answers, as Prometheus' own parser has it."""

import json
import signal
import subprocess
import time
import urllib.request
from typing import Any, Dict, List, Sequence

from tests.support.tool import tool_command, tool_environment

DOCUMENT = "application/openmetrics-text; version=1.0.0"


class Served:
    """One that serves beside the test."""

    def __init__(self, *words: str, before: Sequence[str] = ()) -> None:
        self.popen = subprocess.Popen(
            [*before, *tool_command(), *words, "--json"], env=tool_environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, start_new_session=True,
        )
        line = self.popen.stdout.readline()
        self.start: Dict[str, Any] = json.loads(line) if line else {}

    def text(self, accept: str = DOCUMENT) -> str:
        """A scrape."""
        with urllib.request.urlopen(urllib.request.Request(self.start["url"], headers={"Accept": accept}), timeout=30) as answer:
            return str(answer.read().decode())

    def series(self, after: int = 0) -> Dict[str, List[Any]]:
        """Samples by name, once more than `after` were taken."""
        from prometheus_client.openmetrics import parser  # not in every image

        until = time.monotonic() + 60
        while time.monotonic() < until:
            told: Dict[str, List[Any]] = {}
            for family in parser.text_string_to_metric_families(self.text()):
                for sample in family.samples:
                    told.setdefault(sample.name, []).append(sample)
            if "gdbheapx_samples_total" in told and told["gdbheapx_samples_total"][0].value > after:
                return told
            time.sleep(0.05)
        raise AssertionError("no sample")

    def end(self, number: int = signal.SIGTERM) -> Dict[str, Any]:
        """The last line."""
        self.popen.send_signal(number)
        out, errors = self.popen.communicate(timeout=60)
        assert (self.popen.returncode, errors) == (0, b"")
        last: Dict[str, Any] = json.loads(out.splitlines()[-1])
        return last
