"""Packs of stripped allocator libraries as they are distributed: BUILDID.json, made by `make packs`."""

from typing import Dict

EMBEDDED: Dict[str, str] = {}
"""File name -> contents, where there are no files: in gdbheapx-single.py."""
