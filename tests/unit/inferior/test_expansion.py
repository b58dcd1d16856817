"""Names of C++ and Rust: how long one will be is known before it is written out, and whose methods symbols of Rust are."""

import random
import shutil
import subprocess
from pathlib import Path
from typing import List

import pytest

from gdbheapx.inferior.elf import demangle
from gdbheapx.inferior.elf.demangle import demangle_rust_owner, demangle_variable


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


@pytest.mark.parametrize(
    "symbol, name",
    [
        ("_ZN46_$LT$holds..Circle$u20$as$u20$holds..Shape$GT$4area17h1502aaf8a927134fE.llvm.17010688995810737391", "holds::Circle"),
        ("_ZN4core3ptr42drop_in_place$LT$alloc..string..String$GT$17h4bb3d9cc4a5cf2bbE", "alloc::string::String"),
        (
            "_ZN4core3ptr66drop_in_place$LT$alloc..boxed..Box$LT$dyn$u20$holds..Shape$GT$$GT$17h4bb3d9cc4a5cf2bbE",
            "alloc::boxed::Box<dyn holds::Shape>",
        ),
        ("_ZN5cargo4main28_$u7b$$u7b$closure$u7d$$u7d$17h4bb3d9cc4a5cf2bbE", "cargo::main::{{closure}}"),
        ("_ZN5holds5Shape4name17h4bb3d9cc4a5cf2bbE", None),
        ("_ZN5holds5Shape4name17h4bb3d9cc4a5cf2bb", None),
        ("_ZN3foo3barEv", None),
        (
            "_RNvXs1_NtNtCs8cutESUgEWM_12clap_builder4util5colorNtB5_11ColorChoiceNtNtCsgEmfK2I1SDS_4core3fmt5Debug3fmt",
            "clap_builder::util::color::ColorChoice",
        ),
        ("_RINvNtCsgEmfK2I1SDS_4core3ptr13drop_in_placeNtNtNtCs26ezDKuLN16_5cargo4util5rustc5RustcEBM_", "cargo::util::rustc::Rustc"),
        ("_RNvXs1g_NtCsgEmfK2I1SDS_4core3fmtRNtCs6tjIMW69snP_7gix_url3UrlNtB6_5Debug3fmtCs26ezDKuLN16_5cargo", "&gix_url::Url"),
        (
            "_RINvNtCsgEmfK2I1SDS_4core3ptr13drop_in_placeINtNtCs4wgBoPItHVB_6anyhow5error12ContextErrorReNtNtCs6lBFixRDUy6_10serde_json5error5ErrorEECs26ezDKuLN16_5cargo",
            "anyhow::error::ContextError<&str, serde_json::error::Error>",
        ),
        ("_RNCNvCs1234_7mycrate3foo0B3_", "mycrate::foo::{closure#0}"),
        ("_RNCNvCs1234_7mycrate3foos_0B3_", "mycrate::foo::{closure#1}"),
        ("_RNvMCs1234_7mycrateAh4_3foo", None),
        ("_RNvMCs1234_7mycrateAhj4_3foo", "[u8; 4]"),
        ("_RNvXCs1234_7mycrateFUKCmEuNtB2_5Trait3foo", "fn(u32)"),
        ("_RNvXCs1234_7mycrateINtB2_3FooDNtB2_3BarEL_ENtB2_5Trait3foo", "mycrate::Foo<dyn mycrate::Bar>"),
        ("_RNvNtNtCs26ezDKuLN16_5cargo3ops3fix3fix", None),
        ("main", None),
        ("_RNvXB_B_", None),
    ],
)
def test_names(symbol: str, name: str) -> None:
    """Types of methods in both manglings; functions that are no methods have none."""
    assert demangle_rust_owner(symbol) == name


def test_names_that_never_end() -> None:
    """What refers back again and again, is nested without end or is cut anywhere, is left: there is no error, and no endless work."""
    whole = "_RNvXCs1234_7mycrateINtB2_3FooDNtB2_3BarEL_ENtB2_5Trait3foo"
    deep = "_RNvXC1a" + "R" * 3000 + "u" + "C1a3foo"
    wide = "_RNvXC1a" + "T" + "".join("TB8_B8_E" for _ in range(400)) + "EC1a3foo"
    assert [demangle_rust_owner(deep), demangle_rust_owner(wide)] == [None, None]
    rng = random.Random(1)
    for _ in range(3000):
        at = rng.randrange(2, len(whole))
        text = whole[:at] + rng.choice(("", "B_", "T", "I", "s", "9999", "_", "\u00e9")) + whole[at + rng.randrange(3) :]
        found = demangle_rust_owner(text)
        assert found is None or isinstance(found, str)


@pytest.mark.parametrize(
    "symbol, name",
    [
        ("_PyRuntime", "_PyRuntime"),
        ("_ZN4gate15ProfileResolver6cache_E", "gate::ProfileResolver::cache_"),
        ("_ZL5cache", "cache"),
        ("_ZL5cache.lto_priv.0", "cache"),
        ("_ZN12_GLOBAL__N_15cacheE", "(anonymous namespace)::cache"),
        ("_ZN5holds5CACHE17h4bb3d9cc4a5cf2bbE", "holds::CACHE"),
        ("_RNvCs1234_7mycrate5CACHE", "mycrate::CACHE"),
        ("_RNvNtCs1234_7mycrate4deep5CACHE.llvm.17010688995810737391", "mycrate::deep::CACHE"),
        ("_RNvCs1234_7mycrate5CAC", "_RNvCs1234_7mycrate5CAC"),
        ("_ZN4gate", "_ZN4gate"),
        ("_Z", "_Z"),
    ],
)
def test_variables(symbol: str, name: str) -> None:
    """Of C++ and of both manglings of Rust; what cannot be read stays as it is."""
    assert demangle_variable(symbol) == name


def test_variables_by_the_runtime() -> None:
    """A static of a function, and a name with a tag of the ABI, which no source has."""
    if demangle_variable("_ZGVZ1fvE1x") == "_ZGVZ1fvE1x":
        pytest.skip("no C++ runtime here")
    assert demangle_variable("_ZZN4gate3getEvE5cache") == "gate::get()::cache"
    assert demangle_variable("_ZN4gate8Sessions8by_time_B5cxx11E") == "gate::Sessions::by_time_"
