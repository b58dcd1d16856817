"""Starts another Python interpreter with this gdbheapx, and finds programs by name: no other file does either.

A core lies where its process ran, in a folder of anybody's. A child imports nothing from the working folder, which `python -m` searches
first, from the folder of the single file, or by PYTHON* variables.
"""

import os
import sys
from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Optional, Sequence

from gdbheapx.common.errors import HeapxError
from gdbheapx.common.global_options import GLOBALS
from gdbheapx.common.hints import hint_command
from gdbheapx.common.problems import SHELL_ONLY

if TYPE_CHECKING:
    import subprocess

SINGLE: Optional[str] = None
"""The path of the single file, which sets it (tools/make_single.py)."""
PROGRAM = (
    "import ctypes, os, signal, sys; from importlib import machinery, util; parent, root, user_site = sys.argv[1:4]; del sys.argv[1:4]; "
    "ctypes.CDLL(None).prctl(1, signal.SIGTERM); "  # PR_SET_PDEATHSIG: the child does not outlive the thread that started it
    "os.getppid() == int(parent) or sys.exit(1); spec = machinery.PathFinder.find_spec('gdbheapx', [root]); "
    "package = sys.modules['gdbheapx'] = util.module_from_spec(spec); loader = spec.loader; "
    "loader.exec_module(package) if hasattr(loader, 'exec_module') else loader.load_module('gdbheapx'); "  # zipimporter of Python 3.9
    "sys.path += [root, user_site]; from gdbheapx.app.cli import main; sys.exit(main())"
)
"""Loads the package from `root` itself, a folder or a zip file, and searches what lies next to it last."""


def start_gdbheapx(words: Sequence[str], names: Optional[Mapping[str, str]] = None, **how: Any) -> "subprocess.Popen[bytes]":
    """Start gdbheapx with these words. `names`: further variables of its environment; `how`: further arguments of subprocess.Popen."""
    import subprocess

    return subprocess.Popen([*_program_words(), *words], env={**_child_environment(), **(names or {})}, **how)


def run_gdbheapx(words: Sequence[str], **how: Any) -> "subprocess.CompletedProcess[Any]":
    """Run gdbheapx with these words to its end. `how`: further arguments of subprocess.run."""
    import subprocess

    return subprocess.run([*_program_words(), *words], env=_child_environment(), **how)


def _program_words() -> List[str]:
    """The interpreter and what it runs."""
    import site

    python = [_find_python(), "-I", *(["-B"] if sys.dont_write_bytecode else [])]
    if SINGLE is not None:
        return [*python, SINGLE]
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    user_site = site.getusersitepackages() if site.ENABLE_USER_SITE else root
    return [*python, "-c", PROGRAM, str(os.getpid()), root, user_site]


def _find_python() -> str:
    """The interpreter of this process, or inside gdb, whose sys.executable may be gdb, the machine's."""
    own = sys.executable or ""
    is_python = os.path.basename(own).startswith("python") and os.path.isabs(own) and os.path.isfile(own)
    program = own if is_python else find_program("python3")
    if program is None:
        hint = "take it in a shell: " + hint_command("snapshot now.snap")
        raise HeapxError("there is no python3 to take a snapshot with", hint, code=SHELL_ONLY)
    return program


def _child_environment() -> Dict[str, str]:
    """Return this process's environment without its target and without settings of its own Python."""
    return {name: value for name, value in os.environ.items() if name != GLOBALS and not name.startswith("PYTHON")}


def find_program(name: str) -> Optional[str]:
    """Return the path of a program in an absolute folder of PATH, or `name` itself where it is a path; None if it cannot be run."""
    folders = [""] if "/" in name else filter(os.path.isabs, os.environ.get("PATH", os.defpath).split(":"))
    paths = (os.path.join(folder, name) for folder in folders)
    return next((path for path in paths if os.path.isfile(path) and os.access(path, os.X_OK)), None)
