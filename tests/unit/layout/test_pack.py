"""Bundled packs: what tools/make_packs.py writes is read again, and the search goes by build-id and allocator."""

import pytest

from gdbheapx import packs
from gdbheapx.inferior.base import Member, StructType, TypeSet
from gdbheapx.layout import pack
from tools import make_packs

BUILD_ID = "00ff00ff00ff00ff"


def a_pack() -> pack.Pack:
    """A small pack with one of everything."""
    inner = StructType(16, {"next": Member(0, 8, 1, "pointer"), "state": Member(8, 4, 1, "enum state_e"), "flags": Member(12, 1, 4, "bool")})
    outer = StructType(48, {"links": Member(0, 16, 2, "struct inner_s"), "bytes": Member(32, 8, 1, "uint"), "tail": Member(48, 8, 0, "int")})
    enums = {"state_e": {"off": 0, "on": 1}, "": {"minus": -1}}
    types = TypeSet({"outer_s": outer, "inner_s": inner}, enums, {"arenas": Member(0, 8, 4095, "pointer")})
    symbols, thread_locals = {"arenas": (4096, 32760)}, {"tsd_tls": (0, 2632)}
    return pack.Pack(
        "jemalloc", "5.3.0-0-g0", BUILD_ID, "i386:x86-64", 8, "je_", "", symbols, thread_locals, types, {"lg_page": 12}, "a test", ""
    )


def test_what_is_written_is_read_again() -> None:
    """The pack of dump()'s text is the pack; members keep their order."""
    read = pack.parse_pack(make_packs.dump(a_pack()))
    assert make_packs.tree(read) == make_packs.tree(a_pack()) and make_packs.dump(read) == make_packs.dump(a_pack())
    assert read.types.place("outer_s", "links[1].state") == Member(24, 4, 1, "enum state_e")
    assert list(read.types.structs["inner_s"].members) == ["next", "state", "flags"]


def test_a_pack_is_found_by_build_id_and_allocator(monkeypatch: pytest.MonkeyPatch) -> None:
    """Upper-case build-ids are found, too; another allocator's pack is none."""
    monkeypatch.setattr(packs, "EMBEDDED", {BUILD_ID + ".json": make_packs.dump(a_pack())})
    assert pack.find_pack(BUILD_ID.upper(), "jemalloc") is not None
    assert pack.find_pack(BUILD_ID, "glibc") is None and pack.find_pack("11" * 8, "jemalloc") is None
