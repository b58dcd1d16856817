"""Reads profile.proto back, and asks its real consumer."""

import gzip
import os
import shutil
import subprocess
from pathlib import Path
from typing import Dict, Iterator, List, NamedTuple, Optional, Tuple, Union

import pytest

Field = Union[int, bytes]


def varint(data: bytes, at: int) -> Tuple[int, int]:
    """(number, where it ends)."""
    number = shift = 0
    while True:
        byte = data[at]
        number |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return number, at


def fields(data: bytes) -> Iterator[Tuple[int, Field]]:
    """(number, value) of a message's fields."""
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        value, at = varint(data, at)
        if key & 7 == 2:
            yield key >> 3, data[at : at + value]
            at += value
        else:
            assert key & 7 == 0, "no other wire type is written"
            yield key >> 3, value


def numbers(data: Field) -> List[int]:
    """A packed field."""
    assert isinstance(data, bytes)
    values, at = [], 0
    while at < len(data):
        number, at = varint(data, at)
        values.append(number)
    return values


class Sample(NamedTuple):
    """Names of its frames, the outermost first; of code 0xADDRESS."""

    frames: Tuple[str, ...]
    blocks: int
    bytes: int
    more: Tuple[int, ...] = ()
    """Of further types."""


class Profile(NamedTuple):
    """What a file has."""

    samples: List[Sample]
    mappings: Dict[int, Tuple[str, str]]
    """(file, build-id)."""
    without_mapping: int
    """Locations."""
    types: List[Tuple[str, str]]
    period: int


def read(path: Path) -> Profile:
    """The file, by the field numbers of profile.proto."""
    whole = list(fields(gzip.decompress(path.read_bytes())))
    strings = [value.decode("utf-8") for number, value in whole if number == 6 and isinstance(value, bytes)]
    assert strings[0] == ""

    def parts(wanted: int) -> List[Dict[int, Field]]:
        return [dict(fields(value)) for number, value in whole if number == wanted and isinstance(value, bytes)]

    def text(one: Dict[int, Field], field: int) -> str:
        return strings[int(one.get(field, 0))]

    mappings = {int(one[1]): (text(one, 5), text(one, 6)) for one in parts(3)}
    functions = {int(one[1]): text(one, 2) for one in parts(5)}
    names, lacking = {}, 0
    for one in parts(4):
        line = dict(fields(one[4])) if isinstance(one.get(4), bytes) else None  # type: ignore[arg-type]
        names[int(one[1])] = functions[int(line[1])] if line is not None else "0x%x" % int(one.get(3, 0))
        lacking += int(one.get(2, 0)) not in mappings
    valued = [(tuple(names[at] for at in reversed(numbers(one[1]))), numbers(one[2])) for one in parts(2)]
    samples = [Sample(frames, *values[:2], tuple(values[2:])) for frames, values in valued]
    types = [(text(one, 1), text(one, 2)) for one in parts(1)]
    return Profile(samples, mappings, lacking, types, next(int(value) for number, value in whole if number == 12))


def go() -> Optional[str]:
    """The go command."""
    return shutil.which("go") or shutil.which("go", path="/usr/local/go/bin")


def pprof(*arguments: str) -> str:
    """What `go tool pprof` prints; skips where there is none."""
    program = go()
    if program is None:
        pytest.skip("go is not installed")
    environment = {**os.environ, "PPROF_TMPDIR": os.devnull}
    done = subprocess.run([program, "tool", "pprof", *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout
