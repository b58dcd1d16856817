"""arrows.py FOLDER: who includes and imports whom below it; the arrows between its files and between its rooms (first folders), and circles.

Python imports of the package and C includes of the folder count, one arrow for each pair of files. A file of FOLDER itself is a room of its own.
Exit code 1 where files go round in a circle.
"""

import ast
import os
import re
import sys
from pathlib import Path
from typing import Dict, Iterator, List, Set, Tuple

Arrows = Dict[Path, Set[Path]]
INCLUDE = re.compile(r'^#include "([^"]+)"', re.MULTILINE)


def _module(root: Path, name: str) -> List[Path]:
    """The file of a module of the package that `root` belongs to, with those of its packages between."""
    parts = name.split(".")
    base = root
    while base.name != parts[0] and base.parent != base:
        base = base.parent
    path = base.joinpath(*parts[1:])
    for file in (path.with_suffix(".py"), path / "__init__.py"):
        if file.is_file():
            return [file]
    return []


def _imports(path: Path, root: Path) -> Iterator[Path]:
    package = root
    while (package.parent / "__init__.py").exists():
        package = package.parent
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == package.name:
                    yield from _module(package, alias.name)
        elif isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == package.name and not node.level:
            for alias in node.names:
                yield from _module(package, "%s.%s" % (node.module, alias.name)) or _module(package, node.module)


def _includes(path: Path) -> Iterator[Path]:
    for name in INCLUDE.findall(path.read_text()):
        file = Path(os.path.normpath(path.parent / name))
        if file.is_file():
            yield file


def arrows(root: Path) -> Arrows:
    """File -> the files below `root` that it takes in."""
    root = root.resolve()
    files = sorted(path for suffix in ("*.py", "*.c", "*.h") for path in root.rglob(suffix))
    known, found = set(files), {}
    for path in files:
        taken = _imports(path, root) if path.suffix == ".py" else _includes(path)
        found[path] = {one for one in taken if one in known and one != path}
    return found


def room(path: Path, root: Path) -> str:
    """The first folder below `root`, or the file."""
    return path.relative_to(root.resolve()).parts[0]


def between(found: Arrows, root: Path) -> Set[Tuple[str, str]]:
    """The arrows between rooms."""
    pairs = {(room(path, root), room(other, root)) for path, others in found.items() for other in others}
    return {(one, other) for one, other in pairs if one != other}


def circles(found: Dict[str, Set[str]]) -> List[List[str]]:
    """Groups that reach each other (Tarjan), two and more."""
    number: Dict[str, int] = {}
    lowest: Dict[str, int] = {}
    stack: List[str] = []
    groups: List[List[str]] = []

    def visit(one: str) -> None:
        number[one] = lowest[one] = len(number)
        stack.append(one)
        for other in sorted(found.get(one, ())):
            if other not in number:
                visit(other)
            if other in stack:
                lowest[one] = min(lowest[one], lowest[other])
        if lowest[one] == number[one]:
            group = stack[stack.index(one) :]
            del stack[stack.index(one) :]
            if len(group) > 1:
                groups.append(sorted(group))

    for one in sorted(found):
        if one not in number:
            visit(one)
    return groups


def joined(found: Arrows) -> Arrows:
    """A C file and the header of its name as one: what a header declares stands in its C file."""
    names = {path: path.with_suffix(".h") if path.with_suffix(".h") in found and path.suffix == ".c" else path for path in found}
    merged: Arrows = {}
    for path, others in found.items():
        merged.setdefault(names[path], set()).update({names[other] for other in others} - {names[path]})
    return merged


def main() -> int:
    """Count, print."""
    if len(sys.argv) != 2 or not Path(sys.argv[1]).is_dir():
        print(__doc__.splitlines()[0], file=sys.stderr)
        return 2
    root = Path(sys.argv[1])
    found = arrows(root)
    rooms = between(found, root)
    inside = root.resolve()
    named = {str(path.relative_to(inside)): {str(other.relative_to(inside)) for other in others} for path, others in joined(found).items()}
    files, pairs = circles(named), circles({one: {other for first, other in rooms if first == one} for one, _ in rooms})
    print("%d files, %d arrows between files, %d between rooms" % (len(found), sum(map(len, found.values())), len(rooms)))
    for one in sorted({one for one, _ in rooms}):
        print("  %s -> %s" % (one, ", ".join(sorted(other for first, other in rooms if first == one))))
    for title, group in [("files", group) for group in files] + [("rooms", group) for group in pairs]:
        print("circle of %s: %s" % (title, ", ".join(group)))
    return 1 if files or pairs else 0


if __name__ == "__main__":
    sys.exit(main())
