"""Writes docs/reference.md from the declarations of the commands; `--check` only says whether it is up to date."""

import argparse
import importlib
import importlib.util
import inspect
import pkgutil
import sys
from pathlib import Path
from typing import List

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "reference.md"

SHELL = """## Options of the shell

```
%s```
"""
HEAD = """# Command reference

Generated from the commands' declarations by `make docs`; do not edit.

Inside gdb: `heapx COMMAND [OPTIONS]`. From a shell: `gdbheapx (--pid N | --core FILE) COMMAND [OPTIONS]`. Sizes of chunks
include their header. Exit codes: 0 complete answer, 1 no answer, 2 wrong usage, 3 a finding (`check`: a broken
rule; `tickers`: a blind thread),
4 partial answer.

Every command takes `--json` (one JSON document), `-o FILE` (mode 0600), `--bytes` (plain integers in tables),
`--max-seconds N` (stop after N seconds with a partial answer) and `--allocator ID`.

[What "in RAM" means](in-ram.md) explains `in RAM` and `exclusive` (`..._resident_bytes` and `..._exclusive_bytes` in JSON). In JSON
`target.swapped_in_bytes` is how much memory the reading itself brought back from swap; null on cores and remote targets.
"""


def load_commands() -> None:
    """Import every command, from an installation or from the checkout."""
    try:
        package = importlib.import_module("gdbheapx.commands")
    except ImportError:
        spec = importlib.util.spec_from_file_location(
            "gdbheapx.commands", ROOT / "commands" / "__init__.py", submodule_search_locations=[str(ROOT / "commands")]
        )
        assert spec and spec.loader
        package = importlib.util.module_from_spec(spec)
        sys.modules["gdbheapx.commands"] = package
        spec.loader.exec_module(package)
    for found in pkgutil.iter_modules(package.__path__):
        importlib.import_module("gdbheapx.commands." + found.name)


def page() -> str:
    """The whole page."""
    from gdbheapx.cli import USAGE
    from gdbheapx.command import COMMANDS, full_help

    load_commands()
    out: List[str] = [HEAD, SHELL % USAGE]
    for name in sorted(COMMANDS):
        declared = COMMANDS[name]
        summary, _, rest = inspect.cleandoc(full_help(declared)).partition("\n")
        out.append("## %s\n\n%s\n" % (name, summary))
        if rest.strip():
            out.append(rest.strip() + "\n")
        if not declared.needs_target:
            out.append("Requires no process or core.\n")
        if declared.arguments:
            out.append("| option | meaning |\n| --- | --- |")
            for argument in declared.arguments:
                options = dict(argument.options)
                value = (
                    ""
                    if options.get("action") in ("store_true", "append_const")
                    else " "
                    + str(options.get("metavar") or "|".join(map(str, options.get("choices") or ())) or argument.flags[-1].lstrip("-").upper())
                )
                flags = ", ".join("`%s%s`" % (flag, value if flag.startswith("-") else "") for flag in argument.flags)
                out.append("| %s | %s |" % (flags.replace("|", "\\|"), str(options["help"]).replace("%%", "%").replace("|", "\\|")))
            out.append("")
    out += codes()
    return "\n".join(out).rstrip() + "\n"


CODES = """## Codes of problems

Each entry of `problems` in JSON has a `code`. Sentences may change from release to release, a code never does. A call into the process is
refused if one of the first four kinds is found.

| what it means | codes |
| --- | --- |"""


def codes() -> List[str]:
    """Every code by its nature."""
    from gdbheapx.problems import KNOWN, Nature

    for name in ("glibc", "jemalloc"):
        importlib.import_module("gdbheapx.%s.codes" % name)
    rows = ["| %s | %s |" % (nature.value, ", ".join("`%s`" % code for code in sorted(KNOWN) if KNOWN[code].nature is nature)) for nature in Nature]
    return [CODES, *rows]


def main() -> int:
    """Write or check the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing; exit code 1 if the page is out of date")
    made = page()
    if parser.parse_args().check:
        same = PAGE.exists() and PAGE.read_text() == made
        print("docs/reference.md is up to date" if same else "docs/reference.md is out of date; run `make docs`")
        return 0 if same else 1
    PAGE.write_text(made)
    return 0


if __name__ == "__main__":
    sys.exit(main())
