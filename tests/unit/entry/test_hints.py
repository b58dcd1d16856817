"""Commands as marks in texts."""

from gdbheapx import hints


def test_names_are_quoted() -> None:
    """A shell reads them as they are, and no line ends early."""
    assert hints.bare(hints.ask("owners --of %s", "a b")) == "owners --of 'a b'" and hints.quoted("a\nb") == "$'a\\x0ab'"
    assert hints.words_of(hints.ask("owners")) == "owners" and hints.words_of("jcmd 7 GC.heap_info") is None
