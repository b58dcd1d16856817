"""Where the C kernel cannot be used: totals and lists are told as ever, and what needs it says in one line what is missing."""

import json

import pytest

from tests.support.processes import Lasting, Stage
from tests.support.tool import alone
from tests.support.victims import check_free

pytestmark = pytest.mark.once  # the tool's own rules

PYTHON = {"GDBHEAPX_KERNEL": "python"}
REFUSED = ("leaks", "leaks --weak", "owners", "census", "pins", "pins --no-owners", "refs 0x1000", "export --format csv")
SERVED = ("arenas", "bins", "tcache", "malloc-info", "malloc-stats", "chunks --limit 3", "check", "report", "trim --dry-run", "tunables", "doctor")


@pytest.mark.parametrize("words", REFUSED)
def test_what_follows_pointers_is_refused(lasting: Lasting, kind: str, words: str) -> None:
    """One line with what is missing and the next step, before a process is stopped."""
    process = lasting.of(kind, Stage.start, "recorder", "2", "100", "5")
    outcome = alone(process.target(kind), *words.split(), env=PYTHON)
    assert (outcome.code, outcome.stdout) == (1, b"") and outcome.stderr.count("\n") == 1
    assert "native library" in outcome.stderr and "compiler" in outcome.stderr
    if not words.startswith("export"):
        envelope = json.loads(alone(process.target(kind), *words.split(), "--json", env=PYTHON).stdout)
        assert envelope["error"]["code"] == "kernel-missing" and envelope["target"]["stopped_ms"] is None
    if kind == "live":
        check_free(process)


@pytest.mark.parametrize("words", SERVED)
def test_totals_are_told(lasting: Lasting, kind: str, words: str) -> None:
    """Without a part that is left out."""
    process = lasting.of(kind, Stage.start, "recorder", "2", "100", "5")
    answers = [alone(process.target(kind), *words.split(), "--json", env=env).envelope for env in ({}, PYTHON)]
    assert [one["tool"]["kernel"] for one in answers] == ["c", "python"]
    assert [one["partial"] for one in answers] == [False, False]
    if kind == "core" and words != "doctor":
        assert answers[0]["data"] == answers[1]["data"]


def test_what_has_parts_says_which_are_missing(lasting: Lasting, core: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    """report --deep and a snapshot have what does not need it."""
    process = lasting.of(core, Stage.start, "recorder", "2", "100", "5")
    problems = alone(process.target(core), "report", "--deep", "--json", env=PYTHON).envelope["problems"]
    assert ["native library" in one["what"] for one in problems if one["code"] == "no-answer"] == [True]
    look = str(tmp_path_factory.mktemp("look") / "look")
    assert alone(process.target(core), "snapshot", look, env=PYTHON).code == 0
    for words in ("arenas", "report"):
        assert alone(["--snapshot", look], words, "--json", env=PYTHON).envelope["data"]
