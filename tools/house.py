"""house.py [--list] [--lower]: measures the product: size by package, shared and one-word names, docstrings that are no sentence, stale file names.

tests/size.toml keeps the figures, of which none may rise unnoticed (tests/test_house.py); `--lower` writes those that fell into it, `--list`
adds the places. A code line is one that is not blank, no comment and no docstring.
"""

import ast
import collections
import re
import sys
from pathlib import Path
from typing import Dict, Iterator, List, NamedTuple, Sequence, Set, Tuple

ROOT = Path(__file__).parents[1]
SIZES = ROOT / "tests" / "size.toml"
PRODUCT = ("gdbheapx", "commands")
OPENS_NO_SENTENCE = {
    "what",
    "who",
    "whom",
    "whose",
    "whether",
    "where",
    "which",
    "how",
    "why",
    "when",
    "of",
    "by",
    "with",
    "without",
    "from",
    "for",
    "to",
    "in",
    "at",
    "only",
    "it",
    "they",
    "those",
    "these",
    "that",
    "one",
    "all",
    "some",
    "none",
    "nothing",
    "each",
    "there",
    "here",
    "this",
    "them",
    "as",
}
OWN_WORDS = re.compile(r"\b(told|tells?|whom|anew|whoever|wherever|nobody|somebody|beside|behind|hangs?|stands?|but for)\b", re.I)
GENERIC_NAMES = {"found", "told", "one", "wanted", "asked", "seen", "kept", "known", "given", "every", "row_", "it", "what"}
PRONOUN_NAME = re.compile(
    r"^(at|of|by|here|there|kept|told|named|known|found|asked|seen|given|taken|made|behind|beside|within|instead|together|again)$"
)
C_COMMENT = re.compile(r"/\*.*?\*/", re.S)
PYTHON_FILE = re.compile(r"(?<![\w-])[\w-]+\.py\b")
NOT_HERE = {
    "gdbheapx-single.py",  # made by `make single`
    "gdbheapx-single-VERSION.py",  # the same in a release
    "shop.py",  # an example's program
    "script.py",  # a reader's script
}
"""Files that texts name though the repository has none."""


class Source(NamedTuple):
    """One Python file of the product."""

    name: str  # below the root
    text: str
    tree: ast.Module


class House(NamedTuple):
    """The figures, with the places behind those that have some."""

    packages: Dict[str, int]  # code lines of Python
    figures: Dict[str, int]
    places: Dict[str, List[str]]


def read_sources() -> List[Source]:
    """Return every Python file of the product, by name."""
    paths = sorted(path for folder in PRODUCT for path in (ROOT / folder).rglob("*.py"))
    texts = [(str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")) for path in paths]
    return [Source(name, text, ast.parse(text)) for name, text in texts]


def package_of(name: str) -> str:
    """Return the package that a file counts for: gdbheapx/addons/GROUP, gdbheapx/FOLDER, gdbheapx or commands."""
    parts = name.split("/")
    if parts[:2] == ["gdbheapx", "addons"] and len(parts) > 3:
        return "/".join(parts[:3])
    return "/".join(parts[:2]) if len(parts) > 2 else parts[0]


def count_code_lines(source: Source) -> int:
    """Count the lines that are not blank, no comment and no docstring; docstrings of attributes are some, too."""
    prose: Set[int] = set()
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            prose.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    lines = (line.strip() for line in source.text.split("\n"))
    return sum(1 for number, line in enumerate(lines, 1) if line and not line.startswith("#") and number not in prose)


def count_c_lines() -> int:
    """Count the lines of C of the product without blanks and comments."""
    total = 0
    for path in sorted((ROOT / "gdbheapx").rglob("*.[ch]")):
        text = C_COMMENT.sub(lambda comment: "\n" * comment.group().count("\n"), path.read_text(encoding="utf-8"))
        total += sum(1 for line in text.split("\n") if line.strip() and not line.strip().startswith("//"))
    return total


def find_shared(names: Dict[str, List[str]]) -> List[str]:
    """Return one line for each name that is defined in more than one place."""
    return ["%s: %s" % (name, ", ".join(places)) for name, places in sorted(names.items()) if len(places) > 1]


def is_fragment(docstring: str) -> bool:
    """Tell whether a docstring opens with a word that opens no sentence."""
    first = docstring.split()[0].strip(".,:;`'\"").lower()
    return first in OPENS_NO_SENTENCE or docstring.lower().startswith("the same")


def find_stale_names() -> Iterator[str]:
    """Yield each place of the product's sources and documentation that names a Python file which does not exist."""
    existing = {path.name for path in ROOT.rglob("*.py") if ".venv" not in path.parts}
    texts = [
        path for folder in (*PRODUCT, "docs") for path in sorted((ROOT / folder).rglob("*")) if path.suffix in (".py", ".c", ".h", ".md")
    ]
    for path in texts:
        for number, line in enumerate(path.read_text(encoding="utf-8").split("\n"), 1):
            for name in PYTHON_FILE.findall(line):
                if name not in existing | NOT_HERE and not name.startswith("-"):
                    yield "%s:%d %s" % (path.relative_to(ROOT), number, name)


def find_overrides(sources: Sequence[Source]) -> Set[ast.FunctionDef]:
    """Return the methods that have their name from a base class of the product."""
    classes = {node.name: node for source in sources for node in ast.walk(source.tree) if isinstance(node, ast.ClassDef)}
    overrides: Set[ast.FunctionDef] = set()
    for node in classes.values():
        bases: List[ast.ClassDef] = [node]
        names: Set[str] = set()
        for base in bases:
            parents = [classes.get(getattr(parent, "id", getattr(parent, "attr", ""))) for parent in base.bases]
            fresh = [parent for parent in parents if parent is not None and parent not in bases]
            bases += fresh
            names.update(part.name for parent in fresh for part in parent.body if isinstance(part, ast.FunctionDef))
        overrides.update(part for part in node.body if isinstance(part, ast.FunctionDef) and part.name in names)
    return overrides


def measure() -> House:
    """Measure the checkout."""
    sources = read_sources()
    overrides = find_overrides(sources)
    packages: Dict[str, int] = collections.Counter()
    counts: Dict[str, int] = collections.Counter()
    classes: Dict[str, List[str]] = collections.defaultdict(list)
    functions: Dict[str, List[str]] = collections.defaultdict(list)
    fragments: List[str] = []
    for source in sources:
        packages[package_of(source.name)] += count_code_lines(source)
        for node in ast.walk(source.tree):
            _count_node(node, source, counts, fragments, node in overrides)
            if isinstance(node, ast.ClassDef):
                classes[node.name].append(source.name)
        for node in source.tree.body:
            if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
                functions[node.name].append(source.name)
    stale = list(find_stale_names())
    figures = {
        "python_lines": sum(packages.values()),
        "core_python_lines": sum(lines for name, lines in packages.items() if not name.startswith("gdbheapx/addons")),
        "c_lines": count_c_lines(),
        "python_files": len(sources),
        "classes": sum(len(places) for places in classes.values()),
        "classes_that_share_a_name": sum(len(places) for places in classes.values() if len(places) > 1),
        "public_functions": sum(len(places) for places in functions.values()),
        "public_functions_that_share_a_name": sum(len(places) for places in functions.values() if len(places) > 1),
        **counts,
        "fragments": len(fragments),
        "stale_file_names": len(stale),
    }
    return House(
        dict(packages), figures, {"class": find_shared(classes), "function": find_shared(functions), "fragment": fragments, "stale": stale}
    )


def _count_node(node: ast.AST, source: Source, counts: Dict[str, int], fragments: List[str], is_override: bool) -> None:
    if isinstance(node, ast.ClassDef):
        counts["named_tuples"] += any(getattr(base, "id", getattr(base, "attr", "")) == "NamedTuple" for base in node.bases)
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and not node.name.startswith("__"):
        counts["functions"] += 1
        counts["one_word_functions"] += "_" not in node.name.strip("_") and not is_override
        counts["pronoun_functions"] += bool(PRONOUN_NAME.match(node.name))
    is_stored = isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in GENERIC_NAMES
    counts["generic_values"] += is_stored or (isinstance(node, ast.arg) and node.arg in GENERIC_NAMES)
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        docstring = " ".join((ast.get_docstring(node) or "").split())
        counts["docstrings"] += bool(docstring)
        counts["docstring_words"] += len(docstring.split())
        counts["own_words"] += len(OWN_WORDS.findall(docstring))
        if docstring and is_fragment(docstring):
            fragments.append("%s:%d %s" % (source.name, node.lineno, docstring[:90]))


RATCHETS = (
    "c_lines",
    "python_files",
    "named_tuples",
    "classes_that_share_a_name",
    "public_functions_that_share_a_name",
    "one_word_functions",
    "pronoun_functions",
    "generic_values",
    "fragments",
    "own_words",
    "stale_file_names",
)
"""Figures that tests/size.toml bounds."""


def read_limits() -> Tuple[Dict[str, int], Dict[str, int]]:
    """Return tests/size.toml's limits: code lines by package, and the ratchets by name."""
    tables: Dict[str, Dict[str, int]] = {}
    for line in SIZES.read_text().split("\n"):
        line = line.split("#")[0].strip()
        if line.startswith("["):
            table = tables.setdefault(line.strip("[]"), {})
        elif line:
            name, _, limit = line.partition("=")
            table[name.strip().strip('"')] = int(limit)
    return tables["packages"], tables["figures"]


def find_excess(house: House) -> List[str]:
    """Return one line for each figure above its limit, and for each package without one."""
    packages, figures = read_limits()
    measured = {**house.packages, **{name: house.figures[name] for name in RATCHETS}}
    limits = {**packages, **figures}
    lacking = ["%s has no limit" % name for name in sorted(measured) if name not in limits]
    return lacking + [
        "%s: %d, limit %d" % (name, value, limits[name]) for name, value in sorted(measured.items()) if value > limits.get(name, value)
    ]


def lower_limits(house: House) -> None:
    """Write the figures that fell into tests/size.toml; comments and order stay."""
    measured = {**house.packages, **house.figures}
    lines = []
    for line in SIZES.read_text().split("\n"):
        entry = re.match(r'("?)([\w/]+)\1 = (\d+)(.*)$', line)
        if entry and measured.get(entry.group(2), 0) < int(entry.group(3)):
            if entry.group(2) not in measured:
                continue
            line = "%s%s%s = %d%s" % (entry.group(1), entry.group(2), entry.group(1), measured[entry.group(2)], entry.group(4))
        lines.append(line)
    SIZES.write_text("\n".join(lines))


def main() -> None:
    """Print the figures."""
    house = measure()
    for name, value in [*house.figures.items(), *sorted(house.packages.items(), key=lambda package: -package[1])]:
        print("%-40s %7d" % (name, value))
    for name, places in house.places.items() if "--list" in sys.argv else ():
        print("\n".join("%s %s" % (name, place) for place in places))
    if "--lower" in sys.argv:
        lower_limits(house)
    print("\n".join("ABOVE ITS LIMIT (tests/size.toml): %s" % line for line in find_excess(house)))


if __name__ == "__main__":
    main()
