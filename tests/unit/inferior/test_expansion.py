"""elf/demangle.py: how long a name will be is known before it is written out."""

import shutil
import subprocess
from pathlib import Path
from typing import List

import pytest

from gdbheapx.inferior.elf import demangle


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
    whole = demangle._load_runtime()
    if whole is None:
        pytest.skip("no C++ runtime is installed")
    counting = (lambda text, *rest: given.append(len(text)) or whole[0](text, *rest), whole[1])
    monkeypatch.setattr(demangle, "_load_runtime", lambda: counting)
    assert demangle.demangle_class(bomb(3)).count("a<") == 11 and len(given) == 1
    assert (
        demangle.demangle_class(bomb(40)) == bomb(40)
        and demangle.demangle_variable("_ZGV" + bomb(22)) == "_ZGV" + bomb(22)
        and len(given) == 1
    )
    assert demangle.demangle_variable("_ZTV" + bomb(10)).startswith("vtable for f<a<int") and len(given) == 2


def test_packs_and_parameters_count() -> None:
    """What is written once for each argument, and what stands for an argument, may be long, too."""
    assert demangle.has_short_expansion("_ZZN1aIJiiiEEEvDpT_E1x")
    nested = "T_"
    for _ in range(6):
        nested = "1bIDp%sE" % nested
    assert not demangle.has_short_expansion("_ZZN1aIJ%sEEEv%sE1x" % ("i" * 200, nested))
    assert not demangle.has_short_expansion("_ZTV1a" + "S_" * 90) and not demangle.has_short_expansion(
        "_ZTV" + "N" * 200 + "S_" * 20 + "T_"
    )
    assert demangle._Lengths("_ZZN1aIiEEvT_E1x").whole() >= len("a<int>(int)::x")


def test_lengths_are_no_shorter_than_names(tmp_path: Path) -> None:
    """Of all that the C++ library's own symbols come to: none is longer than what was counted."""
    runtime, nm = demangle._load_runtime(), shutil.which("nm")
    library = next((path for path in Path("/usr/lib").glob("*/libstdc++.so.6")), None)
    if runtime is None or nm is None or library is None:
        pytest.skip("no C++ library or no nm is installed")
    listed = subprocess.run([nm, "-D", "--defined-only", str(library)], capture_output=True, text=True, check=True, timeout=60).stdout
    followed = 0
    for name in sorted({line.split()[-1].partition("@")[0] for line in listed.splitlines()}):
        if name.startswith(("_ZN", "_ZT", "_ZS", "_ZG")):
            try:
                most = demangle._Lengths(name).whole()
            except (demangle.UnfollowedName, IndexError, ValueError):
                continue
            written = demangle._demangle_by_runtime(name, "", "")
            followed += 1
            assert written is None or len(written) <= most, name
    assert followed > 1000
