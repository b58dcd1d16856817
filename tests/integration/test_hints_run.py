"""What is advised can be followed: each command that an answer names is run on the same target, and none is refused.

Files: app/place.py, common/hints.py.
"""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, Iterator, List, Set

import pytest

from gdbheapx.app import place
from gdbheapx.common import addon_loader
from tests.support import jemallocs
from tests.support.paths import COMMANDS
from tests.support.processes import Process, Stage, by_turns
from tests.support.tool import heapx, in_gdb

pytestmark = pytest.mark.once  # what is typed differs by door, not by machine

ASKED = {
    "trimmer": ("report", "leaks", "owners", "pins", "owners --of nothing_here", "whatis 0x10", "whatis 0x10 --chains", "arenas", "doctor", "chunks --limit 2"),
    "tickers": ("report", "tickers", "decay", "pins", "arenas", "whatis 0x10"),
    "python": ("report", "census", "owners", "leaks", "doctor"),
}
"""By program."""
BESIDE = {"core": ("tickers", *(["cold"] if addon_loader.has_capability("cold") else []), "trim"), "snapshot": ("chunks", "census --sites", "whatis 0x10", "bins", "trim --dry-run")}
"""Of the first program what such a target has no answer for: the error names what has."""
WHOLE = re.compile(r"gdbheapx (?:-p|--core|--snapshot) [^`;,\n]*?(?=   |[`;,)\n]|$)")
"""A command as it stands in text: up to what explains it, or the end of the line."""
IN_GDB = re.compile(r"(?<!gdb)heapx ([a-z][^`;,\n]*?)(?=   |[`;,)\n]|$)")
ACTS = {"trim", "purge", "release"}
MOST_SECONDS = ("watch", "cold")
HOLD = "data = {n: [n] for n in range(20000)}\nprint(flush=True)\nimport sys\nsys.stdin.read()"
"""A program of Python."""


RAN: Dict[str, Set[str]] = {}
"""By program: what was typed already."""


def started(stage: Stage, program: str) -> Process:
    """In a state that has much to tell."""
    if program == "tickers":
        return jemallocs.start(stage, "preload", "tickers", "300", "healthy", "frees-first", conf="dirty_decay_ms:400")
    if program == "trimmer":
        return stage.start("trimmer", "arenas")
    process = stage.spawn([sys.executable, "-c", HOLD])
    process.wait_ready(b"\n")
    return process


def kind_of(words: List[str]) -> str:
    """The command and its options, without values and addresses: what decides whether it is understood."""
    return " ".join(word for word in words if word.startswith("--") or word == words[0])


class Reader:
    """Whoever types what the answers of one target tell."""

    def __init__(self, process: Process, target: List[str], folder: Path, ran: Set[str]) -> None:
        self.process, self.target, self.folder, self.ran = process, target, folder, ran
        self.found: Set[str] = set()

    def ask(self, line: str) -> None:
        """One answer: its text, and the steps of a report."""
        words = shlex.split(line)
        shown = heapx(self.target, *words)
        assert shown.code != 2, (line, shown.stderr)
        self.ran.add(self.key(self.target, words))
        self.found.update(WHOLE.findall(shown.stdout.decode() + shown.stderr))
        if words == ["report"] and self.target[0] == "-p":
            steps = heapx(self.target, *words, "--json").data["next_steps"]
            self.found.update(step["command"] for step in steps if (step["command"] or "").startswith("gdbheapx "))

    def key(self, options: List[str], words: List[str]) -> str:
        """What is typed once: a process and its core understand the same."""
        return "%s %s" % ("--snapshot" if "--snapshot" in options else "", kind_of(words))

    def filled(self, line: str) -> List[str]:
        """The words, with what the reader has to choose."""
        words = shlex.split(line)[1:]
        known = {"PID": str(self.process.pid), "OLD": str(self.folder / "now.snap"), "SECONDS": "1", "SIZE": "1M", "N": "1", "NAME": "x", "DIR": str(self.folder)}
        made = [known.get(word, word).replace("now.snap", str(self.folder / "now.snap")) for word in words]
        core = str(self.process.core()) if "FILE" in made and "--core" in made else ""
        for number, word in enumerate(made):
            if word == "FILE":
                files = {"--core": core, "--exe": self.process.executable, "--snapshot": str(self.folder / "now.snap")}
                made[number] = files.get(made[number - 1], str(self.folder / "a file"))
        assert not [word for word in made if re.fullmatch(r"[A-Z]{2,}", word)], line
        return made

    def type_all(self) -> None:
        """Each is understood: a command of another kind than those that were asked is run, the others are parsed."""
        assert self.found
        for line in sorted(self.found, key=lambda line: ("snapshot" not in line, line)):  # what a diff reads is written first
            words = self.filled(line)
            at = 2 if words[:1] in (["-p"], ["--core"], ["--snapshot"]) else 0
            assert words[:at] == self.target[:at] or self.target[0] in ("--core", "--snapshot"), line
            own = words[at:] if self.target[at:] != words[at : len(self.target)] else words[len(self.target) :]
            assert place.parse_words(" ".join(map(shlex.quote, own))) is not None, line
            key = self.key(words[:at], own)
            if key in self.ran or own[0] in MOST_SECONDS:
                continue
            self.ran.add(key)
            more = ["--dry-run"] * (bool(ACTS & {*own}) and "--dry-run" not in own)
            ended = heapx([], *words, *more)
            assert ended.code != 2, (line, ended.stderr)


DOORS = [("trimmer", "live"), ("trimmer", "core"), ("trimmer", "snapshot"), ("tickers", "live"), ("python", "live")]


@pytest.mark.parametrize("program, door", DOORS)
def test_every_hint_runs(stage: Stage, tmp_path: Path, program: str, door: str) -> None:
    """Of a process, its core and a snapshot."""
    process = started(stage, program)
    snapshot, live = str(tmp_path / "now.snap"), ["-p", str(process.pid)]
    target = {"live": live, "core": ["--core"], "snapshot": ["--snapshot", snapshot]}[door]
    if program == "python" or door == "snapshot":
        assert heapx(live, "snapshot", snapshot).code in (0, 4)
        RAN.setdefault(program, set()).add(" snapshot")
    reader = Reader(process, list(process.target("core")) if door == "core" else target, tmp_path, RAN.setdefault(program, set()))
    beside = BESIDE.get(door, ()) if program == "trimmer" else ("diff %s" % snapshot,) if program == "python" else ()
    for line in (*(ASKED[program] if door != "snapshot" else ASKED[program][:7]), *beside):
        reader.ask(line)
    reader.type_all()
    if (program, door) == ("trimmer", "live"):
        told = heapx(target, "report", "--json").data["next_steps"]
        trim = [step for step in told if step["command"].endswith(" trim --dry-run")]
        assert trim and trim[0]["measured"]
        assert trim[0]["saves_bytes"] == heapx(target, "trim", "--dry-run", "--json").data["predicted_resident_bytes"]


def test_every_hint_of_gdb_runs_in_gdb(stage: Stage, tmp_path: Path) -> None:
    """As it is typed there; what only a shell has says so by its name."""
    process = started(stage, "trimmer")
    target, document = ["--pid", str(process.pid)], tmp_path / "report"
    asked = ("leaks", "owners", "chunks --limit 2", "whatis 0x10 --chains", "tunables")
    first = in_gdb(target, ["heapx report --json -o %s" % document, *("heapx " + line for line in asked)])
    told = [step["command"] for step in json.loads(document.read_text())["data"]["next_steps"]]
    found = {line for text in (first.stdout.decode(), first.stderr, "\n".join(filter(None, told))) for line in IN_GDB.findall(text)}
    assert found and not any("heapx -p" in line for line in found)
    lines = {kind_of(line.split()): line.replace("now.snap", str(tmp_path / "now.snap")) for line in sorted(found)}
    lines = {key: line for key, line in lines.items() if line.split()[0] not in (*ACTS, *MOST_SECONDS) or "--dry-run" in line}
    ordered = sorted(lines.values(), key=lambda line: (not line.startswith("snapshot"), line))
    files = [tmp_path / ("answer-%d" % number) for number in range(len(ordered))]
    in_gdb(target, ["heapx %s --json -o %s" % pair if not pair[0].startswith("snapshot") else "heapx " + pair[0] for pair in zip(ordered, files)])
    for line, file in zip(ordered, files):
        assert line.startswith("snapshot") or json.loads(file.read_text()).get("error", {}).get("code") != "usage", line


FORGED = "\x02purge --yes\x03y"
FORGER = "import sys\nopen('/proc/self/comm', 'w').write('\\2trim\\3')\nprint(flush=True)\nsys.stdin.read()"


def test_a_process_writes_no_hint(tmp_path: Path) -> None:
    """What it puts around words on its command line and in a thread's name stays a text of its own: on screens, in JSON, pages, snapshots."""
    with subprocess.Popen([sys.executable, "-c", FORGER, FORGED], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None and process.stdout is not None and process.stdout.readline()
        live, snapshot = ["-p", str(process.pid)], ["--snapshot", str(tmp_path / "a.snap")]
        assert heapx(live, "snapshot", snapshot[1]).code in (0, 4)
        for target in (live, snapshot):
            shown, page = heapx(target, "report", "--brief"), tmp_path / "a.html"
            assert heapx(target, "report", "--html", str(page)).code in (0, 4)
            for text in (shown.stdout.decode() + shown.stderr, page.read_text()):
                assert (
                    "\x02" not in text
                    and not re.search(r"gdbheapx [^;`\n]*(purge --yes|trim)", text)
                    and "gdbheapx %s " % " ".join(target) in text
                )
            document = heapx(target, "report", "--json")
            assert FORGED in document.envelope["target"]["command_line"]
            assert "gdbheapx %s " % " ".join(target) in str(document.data["next_steps"])
        with_threads = heapx(live, "tcache", "--json").stdout.decode() + heapx(live, "arenas", "--json").stdout.decode()
        assert 'gdbheapx -p %d trim"' % process.pid not in with_threads and "\\u0002trim\\u0003" in with_threads
        process.stdin.close()


READING = {path.stem.replace("_", "-") for path in COMMANDS} - {"diff", "doctor", "export", "snapshot"}
ADVISED_ACTS = {"trim", "purge"}
NAMED = re.compile(r"gdbheapx (?:--?[a-z]+ \S+ )*((?:%s)(?: --[a-z-]+(?: (?:\d+|used|mmapped|size))?)*)" % "|".join(sorted(READING)))
"""A command of this tool, without the options that name its target."""


def texts(data: Any) -> Iterator[str]:
    """All sentences of an answer."""
    if isinstance(data, dict):
        for value in data.values():
            yield from texts(value)
    elif isinstance(data, list):
        for value in data:
            yield from texts(value)
    elif isinstance(data, str):
        yield data


def advised(data: Dict[str, Any]) -> Set[str]:
    """Commands of this tool that it names."""
    said = {name: data.get(name) for name in ("verdict", "verdicts", "findings", "next_steps", "advice")}
    return {command for text in texts(said) if "live process" not in text for command in NAMED.findall(text)}


def start(stage: Stage, name: str) -> Process:
    """A program of the suite; of jemalloc's one that keeps pages for its blind threads, where its release has these."""
    if name in ("preload", "rust-0.4"):
        return jemallocs.start(stage, name, "tickers", "400", "frees-first", "frees-first", conf="dirty_decay_ms:300")
    if name == "rust-0.4, stripped":
        folder = stage.folder()
        subprocess.run(["strip", "-o", str(folder / "service"), str(jemallocs.build_rust(jemallocs.RUST["rust-0.4"]))], check=True)
        arguments = [str(folder / "service"), "tickers", str(folder / "record"), "400", "frees-first", "frees-first"]
        return stage.spawn_ready(arguments, folder, {"_RJEM_MALLOC_CONF": "dirty_decay_ms:300"}, folder / "record")
    return stage.start(*{"leaker": ["leaker"], "trimmer": ["trimmer", "arenas"], "left": ["left", "8", "60000"], "mapper": ["mapper"]}[name])


RUST = [pytest.param(name, marks=pytest.mark.rust) for name in ("rust-0.4", "rust-0.4, stripped")]


@by_turns("name", ["leaker", "trimmer", "left", "mapper", "preload", *RUST])
def test_what_is_advised_is_not_refused(stage: Stage, kind: str, name: str, tmp_path: Path) -> None:
    """Live and on a core: those that act are tried dry, and on a core none of these is named."""
    target = start(stage, name).target(kind)
    commands = advised(heapx(target, "report", "--no-deep", "--json").envelope["data"])
    if name.startswith("rust"):
        assert "decay" in commands, "it holds pages, and that is spoken of"
        commands |= advised(heapx(target, "tickers", "--json").envelope["data"])
    for command in sorted(commands):
        words = [str(tmp_path / "file") if word == "FILE" else word for word in command.split()]
        if words[0] == "purge" or words[0] == "trim" or "--cure" in words:
            assert kind == "live" or "--dry-run" in words, "a core is not changed: %s" % command
        if words[0] == "tickers" and "--cure" in words:
            words.append("--yes")
        elif words[0] in ADVISED_ACTS and "--dry-run" not in words:
            words.append("--dry-run")
        outcome = heapx(target, *words, "--json")
        assert outcome.code in (0, 3), (command, outcome.code, outcome.stderr[-300:])
        assert not [one for one in outcome.envelope["problems"] if one["code"] == "call-refused"], command
