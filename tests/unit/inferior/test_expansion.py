"""elf/expansion.py: how long a name will be is known before it is written out."""

import shutil
import subprocess
from pathlib import Path
from typing import List

import pytest

from gdbheapx.inferior.elf import demangle, expansion


def level(number: int) -> str:
    """What refers to the class of that level."""
    digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    before = number - 1
    return "S_" if not number else "S%s_" % ((digits[before // 36] if before >= 36 else "") + digits[before % 36])


def bomb(levels: int) -> str:
    """Each level has the one before it twice."""
    return "1fI1aIiiE" + "".join("S0_I%s%sE" % (level(number), level(number)) for number in range(2, levels + 1)) + "E"


def test_a_name_that_doubles_is_not_written_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each level doubles: a few are a name, forty are never given to the runtime, and stay as they are."""
    given: List[int] = []
    whole = demangle._runtime()
    if whole is None:
        pytest.skip("no C++ runtime is installed")
    monkeypatch.setattr(demangle, "_RUNTIME", [(lambda text, *rest: given.append(len(text)) or whole[0](text, *rest), whole[1])])
    assert demangle.class_name(bomb(3)).count("a<") == 11 and len(given) == 1
    assert demangle.class_name(bomb(40)) == bomb(40) and demangle.variable_name("_ZGV" + bomb(22)) == "_ZGV" + bomb(22) and len(given) == 1
    assert demangle.variable_name("_ZTV" + bomb(10)).startswith("vtable for f<a<int") and len(given) == 2


def test_packs_and_parameters_count() -> None:
    """What is written once for each argument, and what stands for an argument, may be long, too."""
    assert expansion.is_short("_ZZN1aIJiiiEEEvDpT_E1x")
    nested = "T_"
    for _ in range(6):
        nested = "1bIDp%sE" % nested
    assert not expansion.is_short("_ZZN1aIJ%sEEEv%sE1x" % ("i" * 200, nested))
    assert not expansion.is_short("_ZTV1a" + "S_" * 90) and not expansion.is_short("_ZTV" + "N" * 200 + "S_" * 20 + "T_")
    assert expansion._Lengths("_ZZN1aIiEEvT_E1x").whole() >= len("a<int>(int)::x")


def test_lengths_are_no_shorter_than_names(tmp_path: Path) -> None:
    """Of all that the C++ library's own symbols come to: none is longer than what was counted."""
    runtime, nm = demangle._runtime(), shutil.which("nm")
    library = next((path for path in Path("/usr/lib").glob("*/libstdc++.so.6")), None)
    if runtime is None or nm is None or library is None:
        pytest.skip("no C++ library or no nm is installed")
    listed = subprocess.run([nm, "-D", "--defined-only", str(library)], capture_output=True, text=True, check=True, timeout=60).stdout
    followed = 0
    for name in sorted({line.split()[-1].partition("@")[0] for line in listed.splitlines()}):
        if name.startswith(("_ZN", "_ZT", "_ZS", "_ZG")):
            try:
                most = expansion._Lengths(name).whole()
            except (expansion.Unfollowed, IndexError, ValueError):
                continue
            written = demangle._by_runtime(name, "", "")
            followed += 1
            assert written is None or len(written) <= most, name
    assert followed > 1000
