"""Sentences of verdicts and findings: cases of figures, and what is said of them."""

import ast
import re
import sys
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, List, NamedTuple, Sequence, Set, Tuple

import pytest

from gdbheapx.common.hints import strip_targets, write_commands
from gdbheapx.common.model import Finding, StepSentence


class Case(NamedTuple):
    """Figures, and what is said of them."""

    say: Callable[[], Iterable[Any]]
    """Findings, a verdict's among them, or steps."""
    codes: Sequence[str]
    """Of the findings, in their order; of a step its command."""
    words: Sequence[str] = ()
    """What must be in the sentences: figures and names that they are about."""


def sentences(said: Any) -> List[str]:
    """The sentences of a finding or a step."""
    if isinstance(said, Finding):
        return [write_commands(text) for text in (said.what, said.evidence, said.details, said.hint) if text is not None]
    return [strip_targets(str(said))]


def check_whole(text: str) -> None:
    """Nothing is left to be filled in, nothing unknown was put in, and it ends as a line does here: without a full stop."""
    assert text and text == text.strip() and "  " not in text, text
    assert not re.search(r"%[sdrx(]|%\.\d|\{\w*\}|\bNone\b|\bTrue\b|\bFalse\b|<[\w.]+ object|nan\b", text), text
    assert re.search(r"[\w)%\]'\"`]$", text), text
    assert text.count("(") == text.count(")"), text


def check_case(case: Case) -> None:
    """These figures give these codes, in this order, and sentences in which every figure has its place."""
    said = list(case.say())
    assert [one.code if isinstance(one, Finding) else strip_targets(getattr(one, "command", one)) for one in said] == list(case.codes)
    texts = [text for one in said for text in sentences(one)]
    for text in texts:
        check_whole(text)
    for words in case.words:
        assert any(words in text for text in texts), (words, texts)


def calls(path: str, names: Sequence[str]) -> Dict[Tuple[int, int], str]:
    """(first line, last line) of every call of one of these in a file."""
    tree = ast.parse(Path(path).read_text())
    found = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and getattr(node.func, "id", "") in names]
    return {(node.lineno, node.end_lineno or node.lineno): "%s:%d" % (path, node.lineno) for node in found}


def unsaid(
    module: Any, cases: Sequence[Case], monkeypatch: pytest.MonkeyPatch, names: Sequence[str] = ("Finding", "StepSentence")
) -> List[str]:
    """Return the calls of these, Finding and StepSentence, in a module that none of these cases makes."""
    reached: Set[int] = set()

    def noticing(make: Callable[..., Any]) -> Callable[..., Any]:
        def made(*arguments: Any, **more: Any) -> Any:
            reached.add(sys._getframe(1).f_lineno)
            return make(*arguments, **more)

        return made

    for name, make in (("Finding", Finding), ("StepSentence", StepSentence)):
        if hasattr(module, name):
            monkeypatch.setattr(module, name, noticing(make))
    for case in cases:
        list(case.say())
    return [where for (first, last), where in calls(module.__file__, names).items() if not any(first <= line <= last for line in reached)]
