"""Older names of commands answer as the newer forms do, and `release` as trim does, on one core."""

from pathlib import Path

import pytest

from gdbheapx import catalogue, command, help_pages
from tests.support.processes import Stage
from tests.support.tool import heapx

pytestmark = pytest.mark.once  # of a core, and of no image

command.load_commands()


def test_older_names_answer_the_same(stage: Stage, core: str, tmp_path: Path) -> None:
    """The same data, text and exit code; the envelope has the name that was asked for."""
    target = stage.start("recorder", "9", "1000", "3").target(core)
    block = heapx(target, "chunks", "--json", "--status", "used", "--limit", "3").data["chunks"][2]["address"]
    document = tmp_path / "one.json"
    document.write_bytes(heapx(target, "report", "--json").stdout)
    words = {"refs": [block], "table": [str(document)]}
    for older, (newer, _) in [*catalogue.ALIASES.items(), ("chunks --histogram", ("arenas --sizes", {}))]:
        asked = [older.split(), [*newer.split(), *(help_pages.newer_flags(older) if older in catalogue.ALIASES else [])]]
        of = [] if older == "table" else target
        one, other = (heapx(of, *line, *words.get(older, []), "--json") for line in asked)
        assert one.envelope["command"] == asked[0][0] and (one.code, one.envelope["data"]) == (other.code, other.envelope["data"]), older
        one, other = (heapx(of, *line, *words.get(older, [])) for line in asked)
        assert (one.code, one.stdout) == (other.code, other.stdout), older


def test_release_is_what_fits(stage: Stage, core: str) -> None:
    """`release --dry-run` predicts what the allocator's own command predicts."""
    target = stage.start("recorder", "9", "1000", "3").target(core)
    one, other = (heapx(target, *words, "--dry-run", "--json").data for words in (["release"], ["trim"]))
    assert one["releases"] == [{"allocator": "glibc", "command": "trim", **other}]
    assert heapx(target, "release", "--dry-run").stdout == heapx(target, "trim", "--dry-run").stdout
