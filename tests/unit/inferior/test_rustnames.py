"""Whose methods symbols of Rust are."""

import random

import pytest

from gdbheapx.inferior.elf.demangle import rust_type

pytestmark = pytest.mark.once  # pure functions


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
        ("_RNvXs1_NtNtCs8cutESUgEWM_12clap_builder4util5colorNtB5_11ColorChoiceNtNtCsgEmfK2I1SDS_4core3fmt5Debug3fmt", "clap_builder::util::color::ColorChoice"),
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
    assert rust_type(symbol) == name


def test_names_that_never_end() -> None:
    """What refers back again and again, is nested without end or is cut anywhere, is left: there is no error, and no endless work."""
    whole = "_RNvXCs1234_7mycrateINtB2_3FooDNtB2_3BarEL_ENtB2_5Trait3foo"
    deep = "_RNvXC1a" + "R" * 3000 + "u" + "C1a3foo"
    wide = "_RNvXC1a" + "T" + "".join("TB8_B8_E" for _ in range(400)) + "EC1a3foo"
    assert [rust_type(deep), rust_type(wide)] == [None, None]
    rng = random.Random(1)
    for _ in range(3000):
        at = rng.randrange(2, len(whole))
        text = whole[:at] + rng.choice(("", "B_", "T", "I", "s", "9999", "_", "\u00e9")) + whole[at + rng.randrange(3) :]
        found = rust_type(text)
        assert found is None or isinstance(found, str)
