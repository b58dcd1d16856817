"""The site's navigation is docs/index.md: its headings, and the pages below each in their order (a hook of mkdocs)."""

import re
from pathlib import Path
from typing import Any, List

HEADING_OR_PAGE = re.compile(r"^## (.*)$|^\* \[([^]]*)\]\(([^)]*\.md)\)", re.M)


def navigation(docs: Path, index: str) -> List[Any]:
    """The pages of an index, itself first; those of an index that it names are below that one's title."""
    top: List[Any] = [index]
    pages = top
    for heading, title, target in HEADING_OR_PAGE.findall((docs / index).read_text()):
        if heading:
            pages = []
            top.append({heading: pages})
            continue
        page = str(Path(index).parent / target)
        pages.append({title: navigation(docs, page)} if page.endswith("index.md") else page)
    return top


def on_config(config: Any) -> None:
    """Set it."""
    config.nav = navigation(Path(config.docs_dir), "index.md")
