"""Ruby's releases on this machine: the installed one, and those in trees of other systems.

`GDBHEAPX_TEST_RUBIES=/trees/trixie:/trees/sid` names such trees (`debootstrap`, or `docker export` of an image, with `apt-get install ruby`):
an interpreter there runs as it would in a container, with a root and a mount namespace of its own.
"""

import os
import shutil
from pathlib import Path
from typing import Dict, List, Tuple

import pytest

from tests.support.processes import Process, Stage

INSTALLED = "installed"
IN_TREE = 'mkdir -p "$1$2" && mount --bind "$2" "$1$2" && tree=$1 && shift 2 && exec chroot "$tree" "$@"'


def _found() -> Dict[str, Tuple[str, str]]:
    """By name: (the tree, empty for this system; the interpreter in it)."""
    found = {INSTALLED: ("", "ruby")}
    for tree in filter(None, os.environ.get("GDBHEAPX_TEST_RUBIES", "").split(":")):
        for path in sorted(Path(tree, "usr/bin").glob("ruby[0-9]*")):
            found["%s in %s" % (path.name, Path(tree).name)] = (tree, "/usr/bin/" + path.name)
    return found


RUBIES = _found()
NAMES: List[str] = list(RUBIES)


def started(stage: Stage, name: str, text: str, *options: str) -> Process:
    """The program, with its folder and these options as arguments, once it is ready."""
    tree, program = RUBIES[name]
    if not tree and shutil.which(program) is None:
        pytest.skip("ruby is not installed")
    if tree and os.getuid() != 0:
        pytest.skip("another root takes root")
    folder = stage.folder()
    (folder / "program.rb").write_text(text)
    words = [program, str(folder / "program.rb"), str(folder), *options]
    process = stage.spawn(["unshare", "-m", "sh", "-c", IN_TREE, "sh", tree, str(folder), *words] if tree else words, folder)
    process.wait_ready()
    return process
