"""Files that are made of others: written, or with `--check` only compared."""

import argparse
from pathlib import Path
from typing import Mapping, Optional

ROOT = Path(__file__).resolve().parent.parent


def main(files: Mapping[Path, str], doc: Optional[str]) -> int:
    """The exit code; `files`: what is to be in each, `doc`: the tool's docstring."""
    parser = argparse.ArgumentParser(description=doc)
    parser.add_argument("--check", action="store_true", help="change nothing; exit code 1 if a file is out of date")
    stale = [path for path, text in files.items() if not path.exists() or path.read_text() != text]
    if parser.parse_args().check:
        print("%s out of date; run `make docs`" % ", ".join(str(path.relative_to(ROOT)) for path in stale) if stale else "up to date")
        return 1 if stale else 0
    for path in stale:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(files[path])
    return 0
