"""jemalloc's structs by release, for builds that bring no layout themselves: gdbheapx/packs/jemalloc.structs, from packs of built releases.

Each input is NAME=PACK: a pack that `python -m tools.make_packs` made of an unstripped build of an upstream tag. Only its structs and the number of
its bins are taken. Equal structs of several releases are written once. What 5.3.1's four kinds of tsd_s and 5.0.0 differ in is worked out here.
"""

import argparse
import json
import os
from typing import Any, Dict, List, NamedTuple, Sequence, Set, Tuple

from gdbheapx.inferior.base import Member, StructType, TypeSet
from gdbheapx.jemalloc import layouts

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
DESTINATION = os.path.join(ROOT, "gdbheapx", "packs", "jemalloc.structs")
Structs = Dict[str, Any]
LEAST_BYTES = 8
"""The least size class, of which a slab of one page has the most regions."""
WAITS = {"alloc_wait": (1, 1), "dalloc_wait": (0, 1)}
"""Words of te_data_s from 5.3.1 on that come with (--enable-prof, statistics)."""


class Release(NamedTuple):
    """One input."""

    name: str
    version: Tuple[int, int, int]
    bins: int
    structs: Structs
    has: Tuple[bool, bool] = (True, True)
    """Built with profiling, with statistics."""
    page: int = 4096
    mutex: int = 40
    """PAGE and sizeof(pthread_mutex_t)."""


def wanted(structs: Structs) -> Set[str]:
    """What readers ask for, with all that it contains by value."""
    names: Set[str] = set()
    left = [name for name in layouts.STRUCTS if name in structs]
    while left:
        name = left.pop()
        if name not in names:
            names.add(name)
            left += [place[3][7:] for place in structs[name][1].values() if place[3].startswith("struct ")]
    return names


def plain(structs: Structs) -> Structs:
    """The wanted structs; enums are numbers here, their values stand in layouts.py."""
    return {
        name: [
            structs[name][0],
            {field: [*place[:3], "uint" if place[3].startswith("enum ") else place[3]] for field, place in structs[name][1].items()},
        ]
        for name in sorted(wanted(structs))
    }


def with_waits(structs: Structs, own: Tuple[bool, bool], other: Tuple[bool, bool]) -> Structs:
    """The same release built otherwise: te_data_s is shorter or longer, and what follows it in tsd_s moves."""
    size, members = structs["te_data_s"]
    offset, found = 0, {}
    for name, place in members.items():
        count = place[2] + sum(delta * (to - before) for delta, to, before in zip(WAITS[name], other, own))
        found[name] = [offset, place[1], count, place[3]]
        offset += count * place[1]
    tsd_bytes, tsd = structs["tsd_s"]
    begin = tsd["te_data"][0]
    shifted = {name: [place[0] + (offset - size if place[0] > begin else 0), *place[1:]] for name, place in tsd.items()}
    shifted["te_data"][1] = offset
    return {**structs, "te_data_s": [offset, found], "tsd_s": [tsd_bytes + offset - size, shifted]}


def variants(release: Release) -> List[Release]:
    """The build itself, or all four kinds of it where they differ."""
    if "te_data_s" not in release.structs:
        return [release]
    tables = []
    for other in ((True, True), (False, True), (True, False), (False, False)):
        words = " ".join(word for word, has in zip(("prof", "stats"), other) if has) or "neither"
        tables.append(
            release._replace(name="%s %s" % (release.name, words), structs=with_waits(release.structs, release.has, other), has=other)
        )
    return tables


def read(name: str, path: str) -> Release:
    """One input."""
    with open(path, encoding="utf-8") as file:
        tree = json.load(file)
    constants, structs = tree["constants"], plain(tree["structs"])
    bytes_, row = (
        tree["symbols"].get("bin_infos") or tree["symbols"]["arena_bin_info"],
        structs.get("bin_info_s") or structs["arena_bin_info_s"],
    )
    release = layouts.parse_jemalloc_release(tree["version_text"]) or layouts.UNRELEASED
    version = layouts.UNRELEASED if "edata_s" in structs and "tsd_link" not in structs["tsd_s"][1] else release
    has = (bool(constants["config_prof"]), bool(constants["config_stats"]))
    types = TypeSet({name: StructType(size, {field: Member(*place) for field, place in own.items()}) for name, (size, own) in structs.items()})
    regions = layouts.count_slab_regions(types, "edata_s" if "edata_s" in structs else "extent_s") or 0
    page = LEAST_BYTES << regions.bit_length() - 1  # a tree of bitmaps has fewer bits above the lowest level than in it
    return Release(name, version, bytes_[1] // row[0], structs, has, page, structs["pthread_mutex_t"][0])


def shipped() -> List[Release]:
    """What the file has now."""
    with open(DESTINATION, encoding="ascii") as file:
        tree = json.load(file)
    made = [Release(name, tuple(row["version"]), row["bins"], {}, page=row["page"], mutex=row["mutex"]) for name, row in tree["releases"].items()]
    for struct, forms in tree["structs"].items():
        for users, form in forms:
            for number in users:
                made[number].structs[struct] = form
    return made


def dump(releases: Sequence[Release]) -> str:
    """The text of the file: one variant of a struct a line."""
    lines = ["{", '"releases": {']
    rows = [json.dumps(one.name) + ": " + compact({"version": one.version, "bins": one.bins, "page": one.page, "mutex": one.mutex}) for one in releases]
    lines += [",\n".join(rows), "},", '"structs": {']
    names = sorted({name for one in releases for name in one.structs})
    blocks = []
    for name in names:
        by_text: Dict[str, List[int]] = {}
        for number, one in enumerate(releases):
            if name in one.structs:
                by_text.setdefault(compact(one.structs[name]), []).append(number)
        blocks.append("%s: [\n%s\n]" % (json.dumps(name), ",\n".join("[%s,%s]" % (compact(of), text) for text, of in by_text.items())))
    return "\n".join([*lines, ",\n".join(blocks), "}", "}", ""])


def compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def main() -> None:
    """Write the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("packs", nargs="+", metavar="NAME=PACK")
    parser.add_argument("--add", action="store_true", help="to those that the file has; one of the same name is replaced")
    asked = parser.parse_args()
    made = [variant for one in asked.packs for variant in variants(read(*one.split("=", 1)))]
    names = {one.name for one in made}
    releases = [one for one in (shipped() if asked.add else ()) if one.name not in names] + made
    with open(DESTINATION, "w", encoding="ascii") as file:
        file.write(dump(releases))
    print(DESTINATION, os.path.getsize(DESTINATION))


if __name__ == "__main__":
    main()
