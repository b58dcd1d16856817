"""Names as a program may give them to threads, files and classes to drive whatever shows them."""

import shutil
from pathlib import Path

from tests.support.processes import Process, Stage

HOSTILE = (
    "</svg><script>alert(1)</script>",
    "two\nlines",
    "\x1b[31mred",
    "=cmd|' /C calc'!A0",
    "a;b;c",
    b"\xff\xfe latin".decode("utf-8", "surrogateescape"),
    "ends like a difference 12",
    "tab\tand\rreturn\x85next",
    "",
)

OF_THREADS = ("=a;\n\x1b[1m,<b>", "</script>\"'", b"@\xff\xfe;x".decode("utf-8", "surrogateescape"))
"""Which have 15 bytes."""


def start(stage: Stage, record: Path, name: str) -> Process:
    """It runs, with a thread of this name."""
    program = stage.folder() / ("=cmd|;<svg onload=1>,\n" + name.replace("/", ""))
    shutil.copy(stage.builder.build("hostile", "-pthread"), program)
    process = stage.spawn([str(program), str(record), name])
    process.wait_ready()
    return process


def plant(folder: Path) -> None:
    """Put modules there that a Python which searches the folder imports: each leaves a file RAN."""
    (folder / "gdbheapx").mkdir()
    for name in ("json.py", "ctypes.py", "signal.py", "runpy.py", "sitecustomize.py", "gdbheapx/__init__.py"):
        (folder / name).write_text("open(%r, 'a').write(__file__ + '\\n')\n" % str(folder / "RAN"))
