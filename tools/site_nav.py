"""The site's navigation is docs/index.md: its headings, their groups, and the pages below each in their order (a hook of mkdocs)."""

import re
from pathlib import Path
from typing import Any, List

ENTRY = re.compile(r"^## (.*)$|^(\w.*):$|^\* \[([^]]*)\]\(([^)]*\.md)\)", re.M)
"""A heading, a group (`You have:`), or a page with its title."""


def navigation(docs: Path, index: str) -> List[Any]:
    """The pages of an index, itself first; those of an index that it names are below that one's title."""
    top: List[Any] = [index]
    section = pages = top
    for heading, group, title, target in ENTRY.findall((docs / index).read_text()):
        if heading or group:
            pages = []
            (top if heading else section).append({heading or group: pages})
            section = pages if heading else section
            continue
        page = str(Path(index).parent / target)
        pages.append({title: navigation(docs, page)} if page.endswith("index.md") else page)
    return top


def on_config(config: Any) -> None:
    """Set it."""
    config.nav = navigation(Path(config.docs_dir), "index.md")
