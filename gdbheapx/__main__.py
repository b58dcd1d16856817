"""The program `gdbheapx`, also as python -m gdbheapx."""

import sys


def main() -> int:
    """Run the command line; the exit code. A handler of a crash waits for its turn before anything else is imported."""
    words = sys.argv[1:]
    if words[:1] == ["capture"] and words[1:] and words[1].isdigit():
        from gdbheapx.common import addon_loader

        code = addon_loader.load_capability("turn", "capture").begin(words) if addon_loader.has_capability("turn") else None
        if code is not None:
            return int(code)
    from gdbheapx.app.cli import main as run

    return run()


if __name__ == "__main__":
    sys.exit(main())
