"""Standby program that takes snapshots for a watch (Standby in snapshot/take.py): what the first had to import the next has."""

import importlib
import json
import os
import sys
from typing import Callable

from gdbheapx import runner, worker
from gdbheapx.errors import Interrupted
from gdbheapx.invocation import GlobalOptions, Invocation, understand_words

MOST_BYTES = 1 << 18
"""Of names of modules."""


class Noted:
    """Import hook of sys.meta_path that writes down the imports of this process, and finds no module itself."""

    def __init__(self, file: int) -> None:
        self._file, self._pid = file, os.getpid()

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if os.getpid() == self._pid:  # a child may have closed the file
            os.write(self._file, name.encode() + b"\n")


def stand_by(asked: GlobalOptions, answer_it: Callable[[Invocation], int]) -> int:
    """Answer commands, each a line of JSON with its words on standard input, by a line of exit code and text, until there are no more."""
    worker.serve_parent()
    names = worker.open_temporary()

    def answer_and_note_imports(invocation: Invocation) -> int:
        worker.raise_priority()
        sys.meta_path.insert(0, Noted(names))
        return answer_it(invocation)

    with open(0, "rb", closefd=False) as lines:
        for line in lines:
            words = json.loads(line)
            try:
                code, text = worker.answer_in_child(understand_words(asked, words), answer_and_note_imports)
            except Interrupted as error:
                code, text = worker.NO_ANSWER, runner.envelope_of_words(words, error).encode()
            os.write(1, json.dumps([code, text.decode("utf-8", "replace")]).encode() + b"\n")
            for name in os.pread(names, MOST_BYTES, 0).decode().split():
                try:
                    importlib.import_module(name)
                except Exception:  # it was missing in the child as well
                    pass
    return 0
