"""Writes docs/reference/commands.md from the declarations of the commands; `--check` only says whether it is up to date."""

import importlib
import re
import sys
from pathlib import Path
from typing import List

from tools import declared, generated

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "reference" / "commands.md"

MENTION = re.compile(r"\bdocs/([\w/-]+\.md)")
"""A page that the help names, which is text in a terminal: a link here."""

SHELL = """## Options of the shell

```
%s```
"""
HEAD = """# Command reference

Generated from the commands' declarations by `make docs`; do not edit.

Inside gdb: `heapx COMMAND [OPTIONS]`. From a shell: `gdbheapx (--pid N | --core FILE) COMMAND [OPTIONS]`. Sizes of chunks
include their header.

Every command takes these options, after its name or before it. The options of one command come after its name.

| option | meaning |
| --- | --- |
| `--json` | one JSON document |
| `-o FILE` | write the answer to a file (mode 0600), which is there whole or not at all |
| `--bytes` | plain integers in tables |
| `--wide` | all columns of tables. Without it a table is as wide as the terminal (`COLUMNS`, or what the terminal says): columns that matter less go, long texts are shortened, and a line below says so; sentences go on in the next line. In pipes and files it has 120 characters a line, or `COLUMNS`; texts and sentences stay whole there |
| `--color auto\\|always\\|never` | headings bold, warnings yellow, damage and leaks red. `auto`: on a terminal, unless `NO_COLOR` is set or `TERM` is `dumb`; inside gdb as `set style enabled` and `set heapx color` have it. Files and JSON never have colours |
| `--max-seconds N` | end the walk after N seconds, with a partial answer |
| `--max-stop SECONDS` | a live process runs on by then: 2, or 5 for what changes it ([a stop has a limit](../explanation/is-it-safe.md#what-any-debugger-does-to-a-process)) |
| `--allocator ID` | only this allocator |
| `--read-swap` | read pages in swap although a memory limit has no room for them ([what reading costs](../explanation/in-ram.md#what-reading-costs-the-process)) |

An answer that takes longer than two seconds says on standard error how far it is, where that is known with per cent and the time that is left: on
a terminal in one line that goes away, in a log after 2, 4, 8 seconds and so on.

| exit code | meaning |
| --- | --- |
| 0 | complete answer |
| 1 | no answer |
| 2 | wrong usage |
| 3 | a finding that was asked for: `check` found a broken rule, `tickers` an unpurged arena, `--fail-on-...` its limit |
| 4 | partial answer: `problems` says what is missing |

[What "in RAM" means](../explanation/in-ram.md) explains `resident` and `exclusive` (`..._resident_bytes` and `..._exclusive_bytes` in JSON). In JSON
`target.swapped_in_bytes` is how much memory the reading itself brought back from swap; null on cores and remote targets.
"""


def page() -> str:
    """The whole page."""
    from gdbheapx.command.help_pages import GLOBAL, USAGE, newer_flags
    from gdbheapx.common.catalogue import ALIASES

    out: List[str] = [HEAD, SHELL % (USAGE + "\n" + GLOBAL)]
    for one in declared.commands():
        out.append("## %s\n\n%s\n" % (one.name, one.summary))
        if one.text:
            out.append(MENTION.sub(r"[\g<0>](../\1)", one.text) + "\n")
        if not one.needs_target:
            out.append("Requires no process or core.\n")
        if one.options:
            out.append("| option | meaning |\n| --- | --- |")
            for option in one.options:
                value = " " + option.value if option.value and option.is_named else ""
                flags = ", ".join("`%s%s`" % (flag, value) for flag in option.flags)
                out.append("| %s | %s |" % (flags.replace("|", "\\|"), option.help.replace("|", "\\|")))
            out.append("")
    out.append("## Older names\n\nThey still work, with the same answers; `command` in JSON is the older name.\n\n| older | now |\n| --- | --- |")
    out += ["| `%s` | `%s` |" % (name, " ".join([ALIASES[name][0], *newer_flags(name)])) for name in sorted(ALIASES)]
    out += ["| `chunks --histogram` | `arenas --sizes` |", "", *codes()]
    return "\n".join(out).rstrip() + "\n"


CODES = """## Codes of problems

Each entry of `problems` in JSON has a `code`. Sentences may change from release to release, a code never does. A call into the process is
refused if one of the first four kinds is found.

| what it means | codes |
| --- | --- |"""


ERRORS = """## Codes of errors

Where there is no answer, the exit code is 1, or 2 for wrong usage. There is one line on standard error; with `--json` standard output (or the
file of `-o`, if it can be written) has the envelope with `data` null and `error`: `code`, `message` (the cause) and `hint` (the next step,
or null). `code` is one of these, or one of a problem above that leaves nothing to be answered.

| code | meaning |
| --- | --- |"""


def codes() -> List[str]:
    """Every code by its nature; those that only errors have, with their meanings."""
    from gdbheapx.allocators import list_allocator_modules
    from gdbheapx.common.problems import KNOWN, Severity

    for entry in list_allocator_modules():
        importlib.import_module(entry.rpartition(".")[0] + ".codes")
    of_problems = [code for code in sorted(KNOWN) if not KNOWN[code].meaning]
    by_nature = [(nature, [code for code in of_problems if KNOWN[code].nature is nature]) for nature in Severity]
    rows = ["| %s | %s |" % (nature.value, ", ".join("`%s`" % code for code in codes)) for nature, codes in by_nature if codes]
    meanings = ["| `%s` | %s |" % (code, KNOWN[code].meaning) for code in sorted(KNOWN) if KNOWN[code].meaning]
    return [CODES, *rows, "", ERRORS, *meanings]


if __name__ == "__main__":
    sys.exit(generated.main({PAGE: page()}, __doc__))
