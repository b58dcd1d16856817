"""Members of a JSON document that may lack any of them, or have something else in their place."""

from typing import Any, Dict, List, Mapping, Optional


class Whole(str):
    """A text that is no use if it is cut, such as a line to copy."""


def record(document: Any, *names: str) -> Mapping[str, Any]:
    """The object under these names, one in the other; empty where there is none."""
    for name in names:
        document = document.get(name) if isinstance(document, dict) else None
    return document if isinstance(document, dict) else {}


def rows(document: Any, *names: str) -> List[Dict[str, Any]]:
    """The objects of a list; none where there is no list."""
    found = record(document, *names[:-1]).get(names[-1])
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def whole(document: Any, name: str) -> Optional[int]:
    """A number of bytes or things; None where it is not known."""
    found = record(document).get(name)
    return found if isinstance(found, int) and not isinstance(found, bool) else None


def words(document: Any, name: str) -> Optional[str]:
    """A text; None where there is none."""
    found = record(document).get(name)
    return found if isinstance(found, str) else None


def summed(document: Any, *names: str) -> Optional[int]:
    """The sum of those members that the object has; None where one of them is not known, or there is none."""
    here = [name for name in names if name in record(document)]
    known = [whole(document, name) for name in here]
    return sum(one for one in known if one is not None) if known and None not in known else None
