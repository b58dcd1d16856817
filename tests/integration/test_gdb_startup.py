"""`gdbinit --install`: one line in the user's start-up file of gdb, once; what else is there stays.

Files: app/gdb_startup.py
"""

import os
import stat
import subprocess
from pathlib import Path
from typing import Any, Dict, Tuple

import pytest

from gdbheapx.app import gdb_startup
from tests.support.paths import GDB, GDBINIT
from tests.support.tool import run, tool_command, tool_environment

pytestmark = pytest.mark.image  # its gdb's start-up files


def at_home(home: Path) -> Dict[str, str]:
    """The environment of somebody with this home."""
    return {"HOME": str(home), "XDG_CONFIG_HOME": ""}


def asked(home: Path, *words: str) -> Tuple[int, str]:
    """Exit code and what is said, without a terminal."""
    done = subprocess.run(
        [*tool_command(), "gdbinit", *words], capture_output=True, text=True, stdin=subprocess.DEVNULL, start_new_session=True, env={**tool_environment(), **at_home(home)}
    )
    assert done.returncode == 0 or done.stderr.count("\n") == 1, done.stderr
    return done.returncode, done.stdout + done.stderr


def test_each_gdb_knows_heapx_then(tmp_path: Path) -> None:
    """Until it is removed; the file that was there is byte for byte as before, with its permissions."""
    path, own = tmp_path / ".gdbinit", b"set pagination off\n# no end of line \xff"
    path.write_bytes(own)
    path.chmod(0o640)

    def knows() -> bool:
        return b"heapx help [COMMAND]" in run([GDB, "-q", "-batch", "-ex", "help heapx"], env=at_home(tmp_path)).stdout

    assert not knows()
    assert asked(tmp_path, "--install", "--yes")[0] == 0 and knows()
    assert path.read_bytes().startswith(own + b"\n") and stat.S_IMODE(path.stat().st_mode) == 0o640
    written = path.read_bytes()
    code, said = asked(tmp_path, "--install", "--yes")
    assert code == 0 and "already" in said and path.read_bytes() == written
    assert asked(tmp_path, "--remove", "--yes")[0] == 0 and path.read_bytes() == own + b"\n" and not knows()
    assert "nothing to remove" in asked(tmp_path, "--remove", "--yes")[1]
    assert [entry.name for entry in tmp_path.iterdir()] == [".gdbinit"]


def test_which_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that gdb reads: below .config where it is there, else ~/.gdbinit; a link is followed, a folder refused."""
    (tmp_path / "dot").mkdir()
    (tmp_path / "dot" / "files").write_text("set confirm off\n")
    (tmp_path / ".gdbinit").symlink_to(tmp_path / "dot" / "files")
    assert asked(tmp_path, "--install", "--yes")[0] == 0
    assert (tmp_path / ".gdbinit").is_symlink() and b"source" in (tmp_path / "dot" / "files").read_bytes()
    config = tmp_path / ".config" / "gdb" / "gdbinit"
    config.parent.mkdir(parents=True)
    config.write_text("")
    assert asked(tmp_path, "--install", "--yes")[0] == 0 and b"source" in config.read_bytes()
    config.unlink()
    config.mkdir()
    code, said = asked(tmp_path, "--install", "--yes")
    assert code == 1 and str(config) in said


def test_what_is_there_is_kept() -> None:
    """A line for the same file is left, whoever wrote it; an older one of ours is replaced."""
    path = os.fsencode(str(GDBINIT))
    own = b"set a\nsource   %s  \nset b\n" % path
    assert gdb_startup.with_startup_line(own, path) == own
    older: Any = b"set a\n" + gdb_startup.MARK + b"\nsource /old/gdbinit.py\nset b\n"
    assert gdb_startup.with_startup_line(older, path) == older.replace(b"/old/gdbinit.py", path)
    assert gdb_startup.BLOCK.sub(b"", older) == b"set a\nset b\n"
