"""Programs with musl: how they are built and started, and what mu_recorder recorded."""

import platform
import struct
from typing import Dict

from tests.support.paths import PROGRAMS
from tests.support.processes import Process, Stage, compile_once
from tests.support.programs import need

WAYS = {"shared": (), "static": ("-static",), "static, stripped": ("-static", "-s")}


def build(stage: Stage, name: str, way: str) -> str:
    """The program by musl-gcc; skips without it."""
    need("musl-gcc")
    inline = ["-mno-outline-atomics"] if platform.machine() == "aarch64" else []  # libgcc's others ask glibc
    command = ["musl-gcc", "-O1", "-g", "-fno-builtin", "-Wall", "-Wextra", *WAYS[way], *inline, str(PROGRAMS / (name + ".c")), "-pthread"]
    return str(compile_once(stage.builder.folder / ("%s-%s" % (name, way.replace(", ", "-"))), command))


def start(stage: Stage, name: str, way: str, *arguments: str) -> Process:
    """A program with a record, ready."""
    folder = stage.folder()
    process = stage.spawn([build(stage, name, way), str(folder / "record"), *arguments], folder, None, folder / "record")
    process.wait_ready()
    return process


def recorded(process: Process) -> Dict[int, int]:
    """The live blocks of mu_recorder: address -> what was asked for."""
    data = process.record()
    threads, slots = struct.unpack_from("<2Q", data)
    words = struct.unpack_from("<%dQ" % (2 * threads * slots), data, 16)
    return {words[place]: words[place + 1] for place in range(0, len(words), 2) if words[place]}
