"""Commands as marks in texts."""

import ast
import shlex
from typing import Iterator, Tuple

from gdbheapx import command, hints
from tests.support.paths import ROOT


def test_names_are_quoted() -> None:
    """A shell reads them as they are, and no line ends early."""
    assert hints.strip_targets(hints.hint_command("owners --of %s", "a b")) == "owners --of 'a b'" and hints.quote_word("a\nb") == "$'a\\x0ab'"
    assert hints.words_of(hints.hint_command("owners")) == "owners" and hints.words_of("jcmd 7 GC.heap_info") is None


def written() -> Iterator[Tuple[str, bool]]:
    """The words of every ask() and run() in the sources, those that are filled in with values that would do; True: they name all themselves."""
    for path in sorted([*(ROOT / "gdbheapx").rglob("*.py"), *(ROOT / "commands").glob("*.py")]):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call) or not node.args or path.name == "hints.py":
                continue
            of = getattr(getattr(node.func, "value", None), "id", "")
            name = getattr(node.func, "id", getattr(node.func, "attr", "") if of == "hints" else "")
            first = node.args[-1 if name == "about" else 0]
            text = first.left if isinstance(first, ast.BinOp) and isinstance(first.op, ast.Mod) else first
            if name in ("ask", "run", "about") and isinstance(text, ast.Constant) and isinstance(text.value, str):
                words = text.value.replace("0x%x", "0x10").replace("chunks %s", "chunks --status used").replace("query %s", "query 1")
                yield words.replace("refs %s", "refs 0x10").replace("whatis %s", "whatis 0x10").replace("%s", "x"), name == "run"


def test_each_command_is_understood() -> None:
    """By the parser that will read it: no hint ends with exit code 2."""
    for words, is_alone in sorted(set(written()) - {("x --dry-run", False), ("bill PID", True), ("bill PID", False)}):
        typed = shlex.split(words)
        command.load_commands(command.name_in(typed))
        assert command.parse_command(typed, "gdbheapx").help is None, words
        assert is_alone or command.COMMANDS[command.name_in(typed)] is not None, words
