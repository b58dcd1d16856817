"""Runs pytest with the given words; a few tests that failed run once more, with no other test beside them, and the end says which.

A hundred processes that are stopped, dumped and timed on two busy processors: a test may fail for what ran beside it. One that passes
alone is a fault all the same, of the test or of the product: it is told by name, and counted in the table of CI (tools/ci_table.py), but
does not fail the run; one that fails twice does.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import List, Mapping, Sequence

FAILED = 1
"""pytest's exit code where tests failed, and nothing else went wrong."""

MOST = 8
"""More failures than this are no accident."""

REPORT = "--junitxml="


def pytest(words: Sequence[str], cache: Path, environment: Mapping[str, str] = os.environ) -> int:
    """Its exit code; what failed is in the cache then."""
    return subprocess.call([sys.executable, "-m", "pytest", *words, "-o", "cache_dir=%s" % cache], env=environment)


def last_failed(cache: Path) -> List[str]:
    """Node ids of what failed in the last run with this cache."""
    try:
        return sorted(json.loads((cache / "v" / "cache" / "lastfailed").read_text()))
    except (OSError, ValueError):
        return []


def main(words: Sequence[str]) -> int:
    """pytest's exit code: of the first run, or of the second if there was one."""
    with tempfile.TemporaryDirectory() as folder:
        cache = Path(folder)
        code = pytest(words, cache)
        failed = last_failed(cache)
        if code != FAILED or not 0 < len(failed) <= MOST:
            return code
        print("\nfailed: %d; once more, with no other test beside them" % len(failed), flush=True)
        plain = {name: value for name, value in os.environ.items() if name != "PYTEST_PLUGINS"}  # tools/covered.py has its figures
        code = pytest(["-q", *[word + ".again" for word in words if word.startswith(REPORT)], *failed], cache, plain)
        twice = last_failed(cache)
        for name in failed:
            print("failed twice: %s" % name if name in twice or code > FAILED else "failed among others, passed alone: %s; a fault whose reason is to be found" % name, flush=True)
        return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
