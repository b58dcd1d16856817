"""Packs as files: what is written is read again, damage is one line, and the search goes by build-id."""

import json
from pathlib import Path
from typing import Any, Callable, Dict, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gdbheapx.errors import HeapxError
from gdbheapx.inferior.base import Member, Module, StructType, TypeSet, Vtable
from gdbheapx.layout import pack
from gdbheapx.layout.pack import Classes
from tests.support.searches import search

BUILD_ID = "00ff00ff00ff00ff"


def a_pack(build_id: str = BUILD_ID, **changes: Any) -> pack.Pack:
    """A small pack with one of everything."""
    inner = StructType(16, {"next": Member(0, 8, 1, "pointer"), "state": Member(8, 4, 1, "enum state_e"), "flags": Member(12, 1, 4, "bool")})
    outer = StructType(48, {"links": Member(0, 16, 2, "struct inner_s"), "bytes": Member(32, 8, 1, "uint"), "tail": Member(48, 8, 0, "int")})
    types = TypeSet(
        {"outer_s": outer, "inner_s": inner}, {"state_e": {"off": 0, "on": 1}, "": {"minus": -1}}, {"arenas": Member(0, 8, 4095, "pointer")}
    )
    made = pack.Pack(
        "jemalloc",
        "5.3.0-0-g0",
        build_id,
        "i386:x86-64",
        8,
        "je_",
        "",
        {"arenas": (4096, 32760)},
        {"tsd_tls": (0, 2632)},
        types,
        {"lg_page": 12},
        "a test",
        "",
    )
    return made._replace(**changes)


def same(one: pack.Pack, other: pack.Pack) -> bool:
    """Equal in everything a file holds."""
    return pack.tree(one) == pack.tree(other) and pack.dump(one) == pack.dump(other)


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    """load(dump) gives the pack; equal packs give equal files, whatever the order in which they were filled."""
    path = tmp_path / "x.json"
    path.write_text(pack.dump(a_pack()))
    read = pack.load(str(path))
    assert same(read, a_pack())
    assert read.types.place("outer_s", "links[1].state") == Member(24, 4, 1, "enum state_e")
    assert list(read.types.structs["inner_s"].members) == ["next", "state", "flags"]
    types = a_pack().types
    turned = TypeSet(dict(reversed(types.structs.items())), dict(reversed(types.enums.items())), types.variables)
    assert pack.dump(a_pack(types=turned)) == pack.dump(a_pack())


def damaged(change: Callable[[Dict[str, Any]], Any]) -> bytes:
    """The pack's file after `change` of its tree."""
    tree = json.loads(pack.dump(a_pack()))
    change(tree)
    return json.dumps(tree).encode()


DAMAGE: Dict[str, Callable[[Dict[str, Any]], Any]] = {
    "another schema": lambda tree: tree.update(schema="gdbheapx-pack/2"),
    "no structs": lambda tree: tree.pop("structs"),
    "a struct that is not there": lambda tree: tree["structs"].pop("inner_s"),
    "an enum that is not there": lambda tree: tree["enums"].pop("state_e"),
    "a member beyond its struct": lambda tree: tree["structs"]["outer_s"][1].update(bytes=[48, 8, 1, "uint"]),
    "a struct in itself": lambda tree: tree["structs"].update(inner_s=[16, {"me": [0, 16, 1, "struct inner_s"]}]),
    "a struct of another size": lambda tree: tree["structs"]["inner_s"].__setitem__(0, 24),
    "a negative offset": lambda tree: tree["structs"]["inner_s"][1].update(next=[-8, 8, 1, "pointer"]),
    "an unknown kind": lambda tree: tree["structs"]["inner_s"][1].update(next=[0, 8, 1, "double"]),
    "a number of three bytes": lambda tree: tree["structs"]["inner_s"][1].update(next=[0, 3, 1, "uint"]),
    "a fraction": lambda tree: tree["symbols"].update(arenas=[4096.5, 8]),
    "an address without size": lambda tree: tree["symbols"].update(arenas=[4096]),
    "a word of two bytes": lambda tree: tree.update(word_bytes=2),
    "no build-id": lambda tree: tree.update(build_id="../../x"),
    "a list for a table": lambda tree: tree.update(symbols=[]),
}


@pytest.mark.parametrize("what", sorted(DAMAGE))
def test_damage_is_one_line(what: str) -> None:
    """A file that is no pack, or contradicts itself, is refused with its name and the reason in one line."""
    with pytest.raises(HeapxError) as caught:
        pack.parse(damaged(DAMAGE[what]), "the.json")
    assert caught.value.line().startswith("the.json is not a pack: ") and "\n" not in caught.value.line()


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"null", b"\xff\xfe", b"[" * 100000, b'{"schema": "gdbheapx-pack/1"}'])
def test_what_is_no_pack_at_all(data: bytes) -> None:
    """Any other bytes are refused in one line, too."""
    with pytest.raises(HeapxError) as caught:
        pack.parse(data, "the.json")
    assert "\n" not in caught.value.line()


@search(200)
@given(st.data())
def test_any_damage_is_refused_or_harmless(data: Any) -> None:
    """Whatever value of the tree is replaced: the pack is refused, or it still holds together."""
    tree = json.loads(pack.dump(a_pack()))
    node, steps = tree, []
    while True:
        step = data.draw(st.sampled_from(sorted(node) if isinstance(node, dict) else range(len(node))))
        steps.append(step)
        if not isinstance(node[step], (dict, list)) or not node[step] or data.draw(st.booleans()):
            break
        node = node[step]
    node[step] = data.draw(st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.just([]) | st.just({}))
    try:
        read = pack.parse(json.dumps(tree).encode(), "the.json")
    except HeapxError:
        return
    for one in read.types.structs.values():
        assert all(place.offset + place.size_bytes * place.count <= one.size_bytes for place in one.members.values()), steps


def test_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file beyond the limit is not read to its end."""
    path = tmp_path / "x.json"
    path.write_text(pack.dump(a_pack()))
    monkeypatch.setattr(pack, "MAX_FILE_BYTES", 100)
    with pytest.raises(HeapxError, match="larger than 100 bytes"):
        pack.load(str(path))


def test_found_by_build_id(tmp_path: Path) -> None:
    """BUILDID.json first, else any file with that build-id; the first folder wins; another build-id is nobody's."""
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    (second / (BUILD_ID + ".json")).write_text(pack.dump(a_pack(made_from="second")))
    (first / "mine.json").write_text(pack.dump(a_pack(made_from="first")))
    (first / "other.json").write_text('{"something": "else"}')
    folders = [str(tmp_path / "missing"), str(first), str(second)]
    found = pack.find(BUILD_ID.upper(), "jemalloc", folders)
    assert found is not None and found.made_from == "first"
    assert pack.find("1234", "jemalloc", folders) is None
    assert [one.path for one in pack.in_directory(str(first))] == [str(first / "mine.json")]


def test_a_damaged_pack_that_was_meant(tmp_path: Path) -> None:
    """A damaged BUILDID.json, or one of another build, is an error where that build is looked for, and listed with its reason."""
    path = tmp_path / (BUILD_ID + ".json")
    path.write_text("{}")
    with pytest.raises(HeapxError, match="is not a pack"):
        pack.find(BUILD_ID, "jemalloc", [str(tmp_path)])
    assert pack.in_directory(str(tmp_path))[0].problem
    path.write_text(pack.dump(a_pack("abcd")))
    with pytest.raises(HeapxError, match="build-id abcd"):
        pack.find(BUILD_ID, "jemalloc", [str(tmp_path)])


def test_shipped_packs_come_last(tmp_path: Path) -> None:
    """Every shipped pack is found by its build-id, after one in a folder that the user gave."""
    known = pack.shipped()
    assert len(known) >= 8 and len({one.build_id for one in known}) == len(known)
    for one in known:
        found = pack.find(one.build_id, one.allocator)
        assert found is not None and same(found, one)
        (tmp_path / (one.build_id + ".json")).write_text(pack.dump(one._replace(made_from="the user's")))
        mine = pack.find(one.build_id, one.allocator, [str(tmp_path)])
        assert mine is not None and mine.made_from == "the user's"


def test_embedded_packs(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a single file without folders the packs are texts; they are found the same way."""
    monkeypatch.setattr("gdbheapx.packs.EMBEDDED", {BUILD_ID + ".json": pack.dump(a_pack())})
    assert [one.build_id for one in pack.shipped()] == [BUILD_ID]
    found = pack.find(BUILD_ID, "jemalloc")
    assert found is not None and same(found, a_pack())


CLASSES = {0x3A10: Vtable("foo::Bar", 0), 0x3A40: Vtable("foo::Bar", 16), 0xFFFF0: Vtable('std::map<int, "x">', 0)}


def test_vtables_are_read_again(tmp_path: Path) -> None:
    """A pack with vtables, of an allocator or of none, reads back as it was written, also if another program wrote the JSON anew."""
    for name in ("jemalloc", ""):
        made = a_pack(allocator=name, vtables=Classes(CLASSES))
        path = tmp_path / "x.json"
        path.write_text(pack.dump(made))
        read = pack.load(str(path))
        assert same(read, made) and read.vtables.all() == CLASSES and list(read.vtables.all()) == sorted(CLASSES)
        path.write_text(json.dumps(json.loads(pack.dump(made)), indent=1))
        assert same(pack.load(str(path)), made)
    assert "vtables" not in pack.tree(a_pack()) and '"3a40": ["foo::Bar",16]' in pack.dump(made)


def test_vtables_wait_until_they_are_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An allocator's pack is found without a look at 10,000 classes: damage among them is an error only where they are wanted."""
    names = {16 * number: Vtable("name::space::Class<%d>" % number, 0) for number in range(1, 10_001)}
    whole = pack.dump(a_pack(vtables=Classes(names)))
    path = tmp_path / (BUILD_ID + ".json")
    path.write_text(whole.replace('"name::space::Class<5000>"', "5000"))
    found = pack.find(BUILD_ID, "jemalloc", [str(tmp_path)])
    assert found is not None and found.symbols == a_pack().symbols
    with pytest.raises(HeapxError, match="is not the name of a class"):
        found.vtables.all()
    path.write_text(whole)
    found = pack.find(BUILD_ID, "jemalloc", [str(tmp_path)])
    assert found is not None and found.vtables.all() == names


@pytest.mark.parametrize(
    "vtables", ['{"zz": "a"}', '{"-10": "a"}', '{"10": ""}', '{"10": ["a", -1]}', '{"10": ["a", 1, 2]}', '{"10": null}', '{"10": {}}', '{"10": ["a", true]}', '"10": "a",', "[" * 100000]
)
def test_damaged_vtables_are_one_line(vtables: str) -> None:
    """What is no table of vtables is refused in one line when it is asked for, or the whole pack is."""
    text = pack.dump(a_pack()).rstrip("\n}") + '\n},\n"vtables": {\n' + vtables.strip("{}") + "\n}\n}\n"
    with pytest.raises(HeapxError) as caught:
        pack.parse(text.encode(), "the.json").vtables.all()
    assert caught.value.line().startswith("the.json is not a pack: ") and "\n" not in caught.value.line()


def test_a_long_name_is_cut() -> None:
    """A name of more than 4,000 characters is written with three dots at its end."""
    made = pack.parse(pack.dump(a_pack(vtables=Classes({16: Vtable("x" * 9000, 0)}))).encode(), "the.json")
    name = made.vtables.all()[16].name
    assert len(name) == 4000 and name.endswith("x...")


class Files:
    """A target of one module, whose file tells some classes."""

    def vtables(self, module: Module) -> Dict[int, Vtable]:
        """Those of the file."""
        return {32: Vtable("of_the_file", 0)}


def test_classes_of_a_module(tmp_path: Path) -> None:
    """A pack of the build with vtables answers first, one without them is no answer; then the module's own file."""
    module, target = Module("/x/libx.so", 0, False, BUILD_ID, None), cast(Any, Files())
    assert pack.classes(target, module, [str(tmp_path)]) == {32: Vtable("of_the_file", 0)}
    (tmp_path / (BUILD_ID + ".json")).write_text(pack.dump(a_pack()))
    assert pack.classes(target, module, [str(tmp_path)]) == {32: Vtable("of_the_file", 0)}
    (tmp_path / "classes.json").write_text(pack.dump(a_pack(allocator="", vtables=Classes(CLASSES))))
    assert pack.classes(target, module, [str(tmp_path)]) == CLASSES
    assert pack.classes(target, module._replace(build_id=None), [str(tmp_path)]) == {32: Vtable("of_the_file", 0)}
