"""Settings that are advised, and what they were measured to do.

Files: allocators/measured.py. The table is docs/reference/advice.md.
"""

import re
from typing import Iterator, List

import pytest

from gdbheapx.allocators import measured
from gdbheapx.allocators.measured import ARENA_ONE, CASES, MXFAST, NO_TCACHE, SETTINGS, Case
from gdbheapx.common import findings
from gdbheapx.jemalloc.options import OPTIONS
from tests.support.paths import ROOT

pytestmark = pytest.mark.once  # reads the sources

TEXTS = {setting.text: setting for setting in SETTINGS}
NOT_FOR_MEMORY = {"prof:true", "MIMALLOC_SHOW_STATS=1", "MIMALLOC_VERBOSE=1", "MIMALLOC_NAME=VALUE"}
"""What shows more, and is advised for that; and how any option is set."""
VARIABLE = re.compile(r"\b(?:MALLOC|MIMALLOC|TCMALLOC|GLIBC)_[A-Z_]+=[\w.:=,-]*\w")
OPTION = re.compile(r"\b(?:%s):(?:true|false|never|N|-?\d+)\b" % "|".join(option.name for option in OPTIONS))


def rows() -> List[List[str]]:
    """The table's cells."""
    text = (ROOT / "docs" / "reference" / "advice.md").read_text()
    lines = text.partition("<!-- made by make advice -->\n")[2].partition("<!-- end -->")[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_the_most_that_a_setting_saved(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where one of the causes kept the memory; what saved little, or was not tried for a cause, saved nothing."""
    tops = findings.THREAD_TOPS
    tried = [(ARENA_ONE, tops, 50), (ARENA_ONE, tops, 40), (NO_TCACHE, tops, 99), (MXFAST, findings.FASTBINS, 5)]
    monkeypatch.setattr(measured, "CASES", [Case(setting.text, cause, 100, after) for setting, cause, after in tried])
    assert [measured.saved_percent(setting, [tops]) for setting in (ARENA_ONE, NO_TCACHE, MXFAST)] == [60, 0, 0]
    assert measured.saved_percent(MXFAST, [tops, findings.FASTBINS]) == 95


def test_the_table_and_the_product_have_the_same_cases() -> None:
    """Forty rows or more, of four allocators and CPython; the product has those of its settings, and no others."""
    table = rows()
    assert len(table) >= 40 and {row[0].split()[0] for row in table} == {"glibc", "jemalloc", "mimalloc", "tcmalloc", "CPython"}
    assert all(len(row) == 9 and row[6] == "%d %%" % Case("", "", float(row[4]), float(row[5])).saved_percent for row in table)
    found = [Case(row[3].strip("`"), row[2].split("`")[1], float(row[4]), float(row[5])) for row in table]
    assert [case for case in found if case.setting in TEXTS] == list(CASES)
    assert {case.cause for case in CASES} <= {value for name, value in vars(findings).items() if name.isupper()}


def test_every_setting_was_tried_and_helps_somewhere() -> None:
    """HUGETLB_ON is named by `what-if` for what it costs."""
    helping = {case.setting for case in CASES if case.saved_percent >= measured.LEAST_SHARE}
    assert set(TEXTS) - helping == {measured.HUGETLB_ON.text}


def said() -> Iterator[str]:
    """Settings in the texts of the product, but for the registry's."""
    for path in [*(ROOT / "gdbheapx").rglob("*.py"), *(ROOT / "commands").glob("*.py")]:
        text = path.read_text() if path.name != "measured.py" else ""
        yield from [*VARIABLE.findall(text), *OPTION.findall(text)]


def test_no_setting_is_advised_that_was_not_tried() -> None:
    """Each that a text of the product has is in the registry, where every one has a case."""
    options = {part.partition(":")[0] for setting in SETTINGS for part in setting.value.split(",") if ":" in part}
    unknown = {one for one in said() if one not in TEXTS and one.partition(":")[0] not in options}
    assert unknown <= NOT_FOR_MEMORY
