"""Codes of problems: what JSON and scripts rely on.

Files: glibc/codes.py, jemalloc/codes.py.
"""

import ast
import importlib
import re
from pathlib import Path

import pytest

from gdbheapx.allocators import addon_gates
from gdbheapx.allocators.plan import Troubles
from gdbheapx.common import problems
from gdbheapx.common.errors import Busy, Refusal
from gdbheapx.common.problems import KNOWN, Diagnostic, ProblemCode, Severity
from gdbheapx.glibc import codes as glibc_codes
from gdbheapx.jemalloc import codes as jemalloc_codes

ROOT = Path(__file__).parents[3]
ADDED = [importlib.import_module(name.rpartition(".")[0] + ".codes") for name in addon_gates()]
"""Those of allocators of an add-on."""


def test_a_code_is_used_once() -> None:
    """A second problem cannot take a code that there is."""
    with pytest.raises(ValueError):
        ProblemCode("walk-incomplete", Severity.TIME)
    assert KNOWN["walk-incomplete"] is glibc_codes.WALK_CUT


def test_codes_read_alike() -> None:
    """Words with hyphens."""
    assert [code for code in sorted(KNOWN) if not re.fullmatch(r"[a-z]+(-[a-z]+)*", code)] == []


def test_every_code_is_used() -> None:
    """No code stands for a problem that nobody tells."""
    sources = [path for path in [*(ROOT / "gdbheapx").rglob("*.py"), *(ROOT / "commands").glob("*.py")] if path.name not in ("codes.py", "problems.py")]
    text = "\n".join(path.read_text() for path in sources) + (ROOT / "gdbheapx/common/errors.py").read_text()
    names = [name for module in (problems, glibc_codes, jemalloc_codes, *ADDED) for name, value in vars(module).items() if isinstance(value, ProblemCode)]
    assert set(names) - set(re.findall(r"\w+", text)) == set()


def test_every_error_has_its_own_code() -> None:
    """Scripts branch by it: whoever makes an error says which one it is (docs/reference/commands.md lists them)."""
    found = []
    for path in [*(ROOT / "gdbheapx").rglob("*.py"), *(ROOT / "commands").glob("*.py")]:
        text = path.read_text()
        for node in ast.walk(ast.parse(text)) if "HeapxError(" in text else ():
            is_error = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "HeapxError"
            if is_error and len(node.args) < 4 and not any(one.arg == "code" for one in node.keywords):
                found.append("%s:%d" % (path.relative_to(ROOT), node.lineno))
    assert found == []


def test_errors_read_alike() -> None:
    """Each code that only errors have stands in the reference with its meaning: a clause without a full stop."""
    page = (ROOT / "docs/reference/commands.md").read_text()
    codes = [code for code in KNOWN.values() if code.meaning]
    assert len(codes) > 30
    assert [code for code in codes if "| `%s` | %s |" % (code, code.meaning) not in page or code.meaning.endswith(".")] == []


def test_what_forbids_a_call() -> None:
    """Damage, what cannot be read, a change under way and a walk that was cut forbid it; what the machine lacks and notes do not."""
    assert {code.nature for code in KNOWN.values() if code.forbids_calls} == {Severity.DAMAGE, Severity.UNREAD, Severity.MOMENT, Severity.TIME}


def test_a_complaint_in_one_line() -> None:
    """The address first, if there is one."""
    assert Diagnostic(problems.CORE_CUT, None, "it is cut", None).line() == "it is cut"
    assert Diagnostic(problems.CORE_CUT, 0x1000, "it is cut", None).line() == "0x1000: it is cut"


def test_no_problem_of_an_allocator_lets_a_call_through() -> None:
    """What readers of jemalloc tell forbids a purge, whatever it is; trim goes on only where nothing it rests on is missing."""
    assert [code for module in ADDED for code in vars(module).values() if isinstance(code, ProblemCode) and not code.forbids_calls] == []
    assert [code for code in vars(jemalloc_codes).values() if isinstance(code, ProblemCode) and not code.forbids_calls] == []
    assert [code for code in vars(glibc_codes).values() if isinstance(code, ProblemCode) and not code.forbids_calls] == ["mapped-chunks-not-searched"]
    told = Troubles()
    told.report(jemalloc_codes.TSDS_FROM_LISTS, None, "threads are known only from lists", None)
    told.report(problems.THREAD_LOCALS_UNREADABLE, None, "no symbols", None)
    assert told.found == ["threads are known only from lists"]


def test_what_was_not_read_is_no_damage() -> None:
    """Before a call: damage is called so, whatever else there is; memory that could not be read is not; a change that will pass is waited for."""
    damage, unread, moment = (next(code for code in KNOWN.values() if code.nature is nature) for nature in (Severity.DAMAGE, Severity.UNREAD, Severity.MOMENT))
    for codes, kind, word in (
        ([unread, damage, moment], Refusal, "is damaged"),
        ([moment, unread], Refusal, "could not be read in full"),
        ([moment, moment], Busy, "in the middle of a change"),
    ):
        told = Troubles()
        for code in codes:
            told.report(code, None, "it", None)
        with pytest.raises(kind) as raised:
            told.refuse("the heap", "a call would end it", "see it")
        assert type(raised.value) is kind and word in raised.value.message
    Troubles().refuse("the heap", "a call would end it", "see it")
