"""A kernel core that is damaged and healed in place, and asked about without gdb; what it is a core of is the subclass's."""

import os
import random
import signal
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Iterator, List, Sequence, Tuple

from gdbheapx import command
from gdbheapx.app import runner
from gdbheapx.inferior.target import ElfTarget, open_elf_target
from tests.support.busy import stretch
from tests.support.tool import Asked

HOW_MANY = (1, 1, 2, 4, 16, 64)
LOOK_SECONDS = 30


@contextmanager
def in_time(what: str) -> Iterator[None]:
    """Fails where the body hangs."""

    def hangs(*_: Any) -> None:
        raise AssertionError("%s is not done after %d s" % (what, LOOK_SECONDS))

    before = signal.signal(signal.SIGALRM, hangs)
    signal.alarm(round(stretch(LOOK_SECONDS)))
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def another(numbers: random.Random, old: int, places: Sequence[int]) -> int:
    """What stands there instead: a bit flipped, noise, zeros, ones, text, a little more or less, or an address of something else."""
    choice = numbers.randrange(8)
    if choice < 3:
        return old ^ 1 << numbers.randrange(64)
    if choice == 7:
        return numbers.choice(places)
    return (numbers.getrandbits(64), 0, (1 << 64) - 1, 0x4141414141414141, old + numbers.choice((1, -1, 8, 16, 4096, -4096)))[choice - 3]


class DamagedCore:
    """One core."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd = os.open(path, os.O_RDWR)
        self._bytes = os.fstat(self._fd).st_size
        self._undo: List[Tuple[int, bytes]] = []
        command.load_commands()
        self.target: ElfTarget = open_elf_target(str(path))
        self.segments = [(one.address, one.address + one.size_bytes, one.file_offset) for one in self.target.bulk_source().segments]  # type: ignore[union-attr]

    def close(self) -> None:
        """The file is the caller's."""
        os.close(self._fd)

    def _offset(self, address: int) -> int:
        for start, end, offset in self.segments:
            if start <= address < end:
                return offset + address - start
        raise AssertionError("0x%x is not in the core" % address)

    def holds(self, address: int) -> bool:
        """The core has this byte."""
        return any(start <= address < end for start, end, _ in self.segments)

    def get(self, address: int, size: int = 8) -> int:
        """An unsigned integer of the core."""
        return int.from_bytes(os.pread(self._fd, size, self._offset(address)), "little")

    def put(self, address: int, value: int, size: int = 8) -> None:
        """Another value instead."""
        self.write(self._offset(address), (value & (1 << 8 * size) - 1).to_bytes(size, "little"))

    def write(self, offset: int, data: bytes) -> None:
        """Other bytes in the file."""
        self._undo.append((offset, os.pread(self._fd, len(data), offset)))
        os.pwrite(self._fd, data, offset)

    def heal(self) -> None:
        """As it was."""
        while self._undo:
            offset, data = self._undo.pop()
            os.pwrite(self._fd, data, offset)
        os.ftruncate(self._fd, self._bytes)

    def _open(self) -> ElfTarget:
        return open_elf_target(str(self.path))

    def ask(self, *words: str, as_json: bool = True) -> Asked:
        """One command line on the core as it is now, through the runner that shell and gdb use."""
        out: List[str] = []
        host = runner.Host("gdbheapx", out.append, out.append, self._open, runner.Settings(traceback=True))
        ended = runner.run_command_line([*words, *(["--json"] if as_json else [])], host)
        return Asked(ended.code, "".join(out), ended.line)

    def ask_in_words(self, *words: str, as_json: bool = True) -> Asked:
        """The same, which comes in time and in words, with an exit code of the contract."""
        with in_time(" ".join(words)):
            asked = self.ask(*words, as_json=as_json)
        assert asked.code in (0, 1, 3, 4) and "internal error" not in (asked.line or ""), (words, asked.code, asked.line)
        assert (asked.code == 1) == (asked.line is not None), (words, asked.code, asked.line)
        return asked

    def spoil(self, numbers: random.Random, kinds: Sequence[Sequence[int]], how_many: Sequence[int] = HOW_MANY) -> None:
        """Another word in some places; each list of them is as likely to be hit as another."""
        for _ in range(numbers.choice(how_many)):
            places = numbers.choice(kinds)
            place = numbers.choice(places)
            if self.holds(place):
                self.put(place, another(numbers, self.get(place), places))

    @contextmanager
    def harmed(self, seed: int) -> Iterator[random.Random]:
        """For damage by a seed, which is healed afterwards; what fails names the seed."""
        try:
            yield random.Random(seed)
        except Exception as error:
            raise AssertionError("seed %d: %s: %s" % (seed, type(error).__name__, error)) from error
        finally:
            self.heal()
