"""Every image leaves cores, every image reads them: with the right sysroot the answers are equal, with a wrong one that is told.

python3 docker/cross_cores.py [SUITE...]      the images of the matrix, which must be there; all by default
"""

import contextlib
import io
import json
import os
import sys
import tarfile
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence

ROOT = Path(__file__).resolve().parent.parent
WANTED = ("gdbheapx", "commands", "docker", "tests/__init__.py", "tests/programs", "tests/support")
"""What the images need of the checkout."""
KERNEL = "gdbheapx/kernel/_kernel.so"

Say = Callable[[str], None]


class Image(NamedTuple):
    """One image that takes part."""

    name: str
    """How tables name it."""
    tag: str
    library: Optional[bytes] = None
    """The kernel, as it was compiled there; None: it is compiled first."""


class Outcome(NamedTuple):
    """How one image read the cores of another."""

    writer: str
    reader: str
    how: str
    """`right` sysroot, `none`, or the `wrong` one."""
    verdict: str
    """`equal`, `told` (refused, or partial, and the build-id named), `DIFFERENT` or `SILENT`."""
    details: str

    @property
    def good(self) -> bool:
        """What must be."""
        return self.verdict == "equal" if self.how == "right" else self.verdict in ("told", "equal")


def cross(client: Any, images: Sequence[Image], say: Say) -> List[Outcome]:
    """Let each image leave cores and each image read them."""
    volume = client.volumes.create("gdbheapx-cross-" + uuid.uuid4().hex[:12])
    try:
        with contextlib.ExitStack() as stack:
            running = {image.name: stack.enter_context(container(client, image, volume.name)) for image in images}
            def leave(image: Image) -> None:
                say("%s leaves cores" % image.name)
                running[image.name].put_archive("/", checkout(image.library))
                if image.library is None:
                    must(running[image.name], ["python3", "-m", "gdbheapx.kernel.build"], "/src")
                inside(running[image.name], ["leave", "/exchange/" + image.name], "/exchange/" + image.name)

            def read(reader: Image) -> List[Outcome]:
                say("%s reads them" % reader.name)
                return [outcome for writer in images for outcome in pair(running[reader.name], writer, reader, images)]

            with ThreadPoolExecutor(os.cpu_count()) as pool:
                list(pool.map(leave, images))
                return [outcome for outcomes in pool.map(read, images) for outcome in outcomes]
    finally:
        volume.remove(force=True)


def pair(reading: Any, writer: Image, reader: Image, images: Sequence[Image]) -> Iterator[Outcome]:
    """The writer's cores in the reader's image, with the right tree, with none, and with that of another image."""
    own = {name: json.loads(text) for name, text in read_files(reading, "/exchange/" + writer.name).items()}
    wrong = next((image for image in images if image.name != writer.name), None)
    for how, way in (("right", "tree"), ("none", "none"), ("wrong", "/exchange/" + wrong.name if wrong else None)):
        if way is None or (how == "none" and reader.name == writer.name):
            continue
        said = json.loads(inside(reading, ["read", "/exchange/" + writer.name, way], "/"))
        yield Outcome(writer.name, reader.name, how, *judge(own, said))


def judge(own: Dict[str, Any], said: Dict[str, Any]) -> Sequence[str]:
    """The verdict over all programs and commands, and the first reason for it."""
    told = ""
    for program, commands in said.items():
        for command, theirs in commands.items():
            mine = own[program][command]
            where = "%s %s: " % (program, command)
            if mine["code"] != 0:
                return "DIFFERENT", where + "no whole answer in its own image: " + mine["stderr"].strip()
            if theirs["code"] == 0:
                if theirs["data"] != mine["data"]:
                    return ("SILENT" if not theirs["problems"] else "DIFFERENT"), where + "exit code 0 and other data"
                continue
            text = theirs["stderr"] + json.dumps(theirs["problems"])
            if "build-id" not in text:
                return "SILENT", where + "exit code %d without a word about the build-id: %s" % (theirs["code"], text[:400])
            told = told or where + (theirs["stderr"].strip() or theirs["problems"][0]["what"])
    return ("told", told) if told else ("equal", "")


@contextlib.contextmanager
def container(client: Any, image: Image, volume: str) -> Iterator[Any]:
    """A container of the image that may attach and leave cores."""
    from docker.types import Ulimit

    made = client.containers.run(
        image.tag,
        ["sleep", "infinity"],
        detach=True,
        init=True,
        network_mode="none",
        cap_add=["SYS_PTRACE"],
        ulimits=[Ulimit(name="core", soft=-1, hard=-1)],
        volumes={volume: {"bind": "/exchange", "mode": "rw"}},
    )
    try:
        yield made
    finally:
        made.remove(force=True)


def inside(made: Any, words: Sequence[str], folder: str) -> str:
    """Run core_exchange.py in the container; what it printed."""
    made.exec_run(["mkdir", "-p", folder])
    return must(made, ["python3", "/src/docker/core_exchange.py", *words], folder)


def must(made: Any, words: Sequence[str], folder: Optional[str] = None) -> str:
    """What a command of the container prints, which has to succeed; run in its working folder, or in `folder` with the checkout's modules."""
    code, (out, err) = made.exec_run(list(words), workdir=folder, environment={"PYTHONPATH": "/src"} if folder else None, demux=True)
    if code != 0:
        raise RuntimeError("%s ended with %d: %s" % (" ".join(words)[:200], code, (err or out or b"").decode(errors="replace")[-4000:]))
    return str((out or b"").decode())


def read_files(made: Any, folder: str) -> Dict[str, str]:
    """NAME -> contents of every NAME.json in a folder of the container."""
    code, output = made.exec_run(["sh", "-c", 'cd "$0" && ls *.json', folder])
    assert code == 0, output
    return {name[: -len(".json")]: made.exec_run(["cat", "%s/%s" % (folder, name)])[1].decode() for name in output.decode().split()}


def checkout(library: Optional[bytes] = None) -> bytes:
    """The tool's sources as a tar file, with an image's own kernel in place of what was built here."""

    def chosen(entry: tarfile.TarInfo) -> Optional[tarfile.TarInfo]:
        skip = entry.name.endswith((".so", ".pyc")) or "__pycache__" in entry.name
        entry.uid = entry.gid = 0
        return None if skip else entry

    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name in WANTED:
            archive.add(str(ROOT / name), "src/" + name, filter=chosen)
        if library is not None:
            entry = tarfile.TarInfo("src/" + KERNEL)
            entry.size, entry.mode = len(library), 0o755
            archive.addfile(entry, io.BytesIO(library))
    return packed.getvalue()


def table(outcomes: Sequence[Outcome]) -> str:
    """One line for each pair."""
    head = ("core of", "read in", "right sysroot", "no sysroot", "wrong sysroot")
    lines = [head]
    for writer, reader in dict.fromkeys((one.writer, one.reader) for one in outcomes):
        by = {one.how: one.verdict for one in outcomes if (one.writer, one.reader) == (writer, reader)}
        lines.append((writer, reader, by.get("right", "-"), by.get("none", "-"), by.get("wrong", "-")))
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    return "\n".join("  ".join(word.ljust(width) for word, width in zip(line, widths)).rstrip() for line in lines)


def main(words: Sequence[str]) -> int:
    """Print the table; 1 if any pair is not as it must be."""
    from matrix import ROWS, row

    import docker

    chosen = [row(word) for word in words] if words else list(ROWS)
    client = docker.from_env(timeout=3600)
    outcomes = cross(client, [Image(one.suite, one.image) for one in chosen], lambda text: print(text, file=sys.stderr, flush=True))
    print(table(outcomes))
    bad = [one for one in outcomes if not one.good]
    for one in bad:
        print("%s in %s, %s sysroot: %s: %s" % (one.writer, one.reader, one.how, one.verdict, one.details))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
