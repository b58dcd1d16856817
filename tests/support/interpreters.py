"""Releases of Ruby and PHP on this machine: the installed one, and those in trees of other systems.

`GDBHEAPX_TEST_TREES=/trees/trixie:/trees/sid` names such trees (`debootstrap`, or `docker export` of an image, with `apt-get install ruby
php-cli`): an interpreter there runs as it would in a container, with a root and a mount namespace of its own.
"""

import os
import re
import shutil
from pathlib import Path
from typing import Dict, List, Tuple

import pytest

from gdbheapx.allocators.session import Session
from gdbheapx.app.stopping import Copying
from gdbheapx.inferior.target import open_elf_target
from tests.support.gcores import gcore
from tests.support.processes import Process, Stage

IN_TREE = 'mkdir -p "$1$2" && mount --bind "$2" "$1$2" && tree=$1 && shift 2 && exec chroot "$tree" "$@"'


def _in_trees() -> Dict[str, Tuple[str, str]]:
    """By name: (the tree, the interpreter in it)."""
    found = {}
    for tree in filter(None, os.environ.get("GDBHEAPX_TEST_TREES", "").split(":")):
        for path in sorted(Path(tree, "usr/bin").iterdir()):
            if re.fullmatch(r"(ruby|php)[0-9.]+", path.name):
                found["%s in %s" % (path.name, Path(tree).name)] = (tree, "/usr/bin/" + path.name)
    return found


IN_TREES = _in_trees()


def releases(language: str) -> List[str]:
    """`ruby` or `php`, the installed one, and `ruby3.4 in sid`."""
    return [language, *(name for name in IN_TREES if name.startswith(language))]


def started(stage: Stage, name: str, text: str, *options: str, **files: str) -> Process:
    """The program, with its folder and these options as arguments, once it is ready. Other files lie beside it."""
    tree, program = IN_TREES.get(name, ("", name))
    if not tree and shutil.which(program) is None:
        pytest.skip("%s is not installed" % name)
    if tree and os.getuid() != 0:
        pytest.skip("another root takes root")
    folder = stage.folder()
    (folder / "program").write_text(text)
    for file, content in files.items():
        (folder / file).write_text(content)
    words = [program, str(folder / "program"), str(folder), *options]
    process = stage.spawn(["unshare", "-m", "sh", "-c", IN_TREE, "sh", tree, str(folder), *words] if tree else words, folder)
    process.wait_ready()
    return process


def session_of(process: Process, kind: str) -> Session:
    """On a copy of the process, or on a core of it by gdb."""
    target = open_elf_target(pid=process.pid) if kind == "live" else open_elf_target(core=str(gcore(process)))
    session = Session(target)
    session.prepare()
    if kind == "live":
        table = target.page_table()
        assert table is not None
        copying = Copying(session.kernel, session.kernel.copy(table))
        copying.prepare(target)
        target.stop()
        assert copying.take(target) is None
    return session
