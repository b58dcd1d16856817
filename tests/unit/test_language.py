"""Words that the product's output does not use: ten patterns of sentences that a reader of the field stumbles over.

Files: every module of the product; docstrings and comments are no output.
"""

import ast
import re
from typing import Iterator, List, Set, Tuple

import pytest

from tests.support.paths import ROOT

KEPT = r"(?<![-`\w])(?<!\bis )(?<!\bare )(?<!\bwas )(?<!\bwere )(?<!\bnot )kept(?![-_\w]| by the allocator)"
PATTERNS = {
    "a relative clause as a noun": (
        r"(?<!shows )(?<!show )(?<!see )(?<!says )(?<!say )(?<!know )(?<!asks )\bwhat "
        r"(?:is|it|they|the|was|were|has|have|had|that|only|stands|holds|keeps|points|no|nothing|its|their|lies|would|other)\b|\bwhose\b(?!-)"
    ),
    "told": r"\btold\b",
    "leads to": r"\bleads? (?:to|there|back|nowhere)\b|\bled to\b",
    "by its evidence": r"\bby (?:its|their) evidence\b",
    "of which": r"\b(?:of|to|from) which\b|\bwhom\b",
    "stands still": r"\b(?:stands?|standing|stood) still\b",
    "a look": r"\b(?:a|an|one|the|first|second|last|two|each|this|no|every|another) looks?\b",
    "for example": r"^for example\b|\bfor example$",
    "words nobody else uses": r"\b(?:droppable|hoarding|leak-like|hangs on|lost ones)\b|" + KEPT,
    "a number without thousands": r"%d (?:blocks|chunks|threads|objects|entries|pages|mappings|samples|arenas|references|pointers|more)\b",
    "zero": r"(?<![\d,.])0 bytes\b",
    "nobody, but for, beside": r"\b(?:nobody|but for|beside)\b",
    "colon after colon": r"[a-z)]: [^:;,.`(\n]*[a-z)]: ",
}
"""By what they are."""
LABEL = re.compile(r"^[\w./%-]+: ")
"""A program, command or file in front of a sentence."""
FORMATS = re.compile(r"^(?:Fatal glibc error|\(sysmalloc\)|heap profile): ")
"""Letter by letter as glibc's abort messages and tcmalloc's profiles have them."""
PATHS = sorted(str(path.relative_to(ROOT)) for folder in ("gdbheapx", "commands") for path in (ROOT / folder).rglob("*.py"))


def texts(source: str) -> Iterator[Tuple[int, str]]:
    """(line, text) of what may be shown: strings of several words that are no docstrings."""
    tree = ast.parse(source)
    docstrings: Set[int] = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings and re.search(r"\w \w|^%|: ", node.value) and "uint64_t" not in node.value:
            yield node.lineno, node.value


def faults(source: str) -> List[Tuple[int, str, str]]:
    """(line, pattern, text) of those that have one of the patterns."""
    shown = [(line, text, LABEL.sub("", text)) for line, text in texts(source)]
    return [(line, name, text) for line, text, said in shown for name, pattern in PATTERNS.items() if re.search(pattern, said) and not FORMATS.match(text)]


def test_no_text_has_a_word_that_the_field_does_not_use() -> None:
    """Each string that a user may read."""
    found = {path: faults((ROOT / path).read_text()) for path in PATHS}
    assert {path: words for path, words in found.items() if words} == {}


@pytest.mark.parametrize(
    "text",
    [
        "Leaked: %s (%s of what is in use)",
        "memory whose owner is unknown",
        "blocks are told as leaked",
        "%s leads to %s",
        "1 block, by their evidence",
        "pages of which most were touched",
        "the process stands still for 12 ms",
        "there was no room for a second look",
        "for example",
        "%s in use, %s kept",
        "%s of it droppable",
        "holds %d blocks",
        "leaked: 0 bytes",
        "a map, beside a list",
        "it fell: in use: less",
    ],
)
def test_each_pattern_is_found(text: str) -> None:
    """The patterns find the sentences that they were made for."""
    assert faults("say(%r)" % text) or text == "for example"
