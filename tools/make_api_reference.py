"""Writes the names of docs/reference/python-api.md from the docstrings of gdbheapx/api.py and of the records that it gives; `--check` only looks."""

import ast
import re
import sys
from pathlib import Path
from typing import Dict, Iterator, List, Tuple

from tools import generated

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "reference" / "python-api.md"
MARKS = re.compile(r"(<!-- names: begin -->\n).*?(<!-- names: end -->)", re.S)
API = "gdbheapx/api.py"
CLASSES = (("open", API), ("current", API), ("Heap", API), ("Answer", API), ("Blocks", "gdbheapx/analysis/census/block.py"), ("Block", "gdbheapx/analysis/census/block.py"))
RECORDS = (
    ("Overview", "gdbheapx/analysis/overview.py"),
    ("HeapArenas", "gdbheapx/allocators/records.py"),
    ("Census", "gdbheapx/analysis/census/find.py"),
    ("CensusRow", "gdbheapx/analysis/census/find.py"),
    ("Leaks", "gdbheapx/analysis/reachability/leaks.py"),
    ("LeakGroup", "gdbheapx/analysis/reachability/leaks.py"),
    ("Owners", "gdbheapx/analysis/reachability/owners.py"),
    ("OwnedMemory", "gdbheapx/analysis/reachability/owners.py"),
    ("Refs", "gdbheapx/analysis/reachability/refs.py"),
    ("RefsChain", "gdbheapx/analysis/reachability/refs.py"),
    ("RefsStep", "gdbheapx/analysis/reachability/refs.py"),
    ("Location", "gdbheapx/analysis/census/block.py"),
    ("PinsAnswer", "gdbheapx/analysis/pins.py"),
    ("Diff", "gdbheapx/snapshot/diff.py"),
    ("DiffChange", "gdbheapx/snapshot/diff.py"),
    ("Rows", "gdbheapx/api.py"),
    ("ThreadCache", "gdbheapx/common/model.py"),
    ("HistogramRow", "gdbheapx/common/model.py"),
    ("Problem", "gdbheapx/common/model.py"),
    ("AllocatorInfo", "gdbheapx/common/model.py"),
)
"""What answers are made of: name, and the file that declares it."""


def node_of(name: str, file: str) -> ast.AST:
    """The declaration."""
    tree = ast.parse((ROOT / file).read_text())
    return next(node for node in tree.body if isinstance(node, (ast.ClassDef, ast.FunctionDef)) and node.name == name)


def said(node: ast.AST) -> str:
    """Its docstring in one line."""
    return " ".join((ast.get_docstring(node) or "").split())  # type: ignore[arg-type]


def type_of(node: ast.AST) -> str:
    """An annotation as it is written, without columns and quotes."""
    text = ast.unparse(node).replace("'", "")
    return re.sub(r"Annotated\[(.+?), (?:Column|hidden_column|OfAllocator)\(.*\)\]", r"\1", text).replace("|", "\\|")


def signature(node: ast.FunctionDef) -> str:
    """The arguments that a caller gives."""
    arguments, defaults = node.args, [*node.args.defaults]
    plain = [one for one in arguments.args if one.arg != "self"]
    given = [None] * (len(plain) - len(defaults)) + defaults  # type: ignore[operator]
    words = [one.arg + ("" if default is None else "=%s" % ast.unparse(default)) for one, default in zip(plain, given)]
    words += ["*%s" % arguments.vararg.arg] if arguments.vararg else []
    words += [one.arg + ("" if default is None else "=%s" % ast.unparse(default)) for one, default in zip(arguments.kwonlyargs, arguments.kw_defaults)]
    return "%s(%s)" % (node.name, ", ".join(words))


def fields(node: ast.ClassDef) -> Iterator[Tuple[str, str, str]]:
    """(name, type, fact) of each field that it declares, in a record or in __init__."""
    bodies: List[List[ast.stmt]] = [node.body]
    bodies += [one.body for one in node.body if isinstance(one, ast.FunctionDef) and one.name == "__init__"]
    for body in bodies:
        for place, one in enumerate(body):
            target = getattr(one, "target", None) or (one.targets[0] if isinstance(one, ast.Assign) else None)
            name = target.id if isinstance(target, ast.Name) else target.attr if isinstance(target, ast.Attribute) else ""
            if not name or name.startswith("_") or (isinstance(one, ast.Assign) and body is node.body):
                continue
            after = body[place + 1] if place + 1 < len(body) else None
            fact = after.value.value if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant) else ""
            yield name, type_of(one.annotation) if isinstance(one, ast.AnnAssign) else "", " ".join(str(fact).split())


def section(name: str, file: str) -> List[str]:
    """What the page says of one name."""
    node = node_of(name, file)
    if isinstance(node, ast.FunctionDef):
        return ["", "### `%s`" % signature(node), "", said(node)]
    assert isinstance(node, ast.ClassDef)
    lines = ["", "### %s" % name, "", said(node), "", "| name | type | |", "| --- | --- | --- |"]
    lines += ["| `%s` | %s | %s |" % (field, "`%s`" % kind if kind else "", fact.replace("|", "\\|")) for field, kind, fact in fields(node)]
    for one in node.body:
        if isinstance(one, ast.FunctionDef) and not one.name.startswith("_"):
            is_property = any(isinstance(mark, ast.Name) and mark.id == "property" for mark in one.decorator_list)
            gives = type_of(one.returns) if one.returns is not None else ""
            lines.append("| `%s` | `%s` | %s |" % (one.name if is_property else signature(one), gives, said(one).replace("|", "\\|")))
    return lines


def names() -> str:
    """The generated part."""
    lines: List[str] = []
    for name, file in CLASSES:
        lines += section(name, file)
    lines += ["", "## Records"]
    for name, file in RECORDS:
        lines += section(name, file)
    return "\n".join(lines) + "\n"


def files() -> Dict[Path, str]:
    """The page as it is to be."""
    return {PAGE: MARKS.sub(lambda found: found[1] + names() + "\n" + found[2], PAGE.read_text())}


if __name__ == "__main__":
    sys.exit(generated.main(files(), __doc__))
