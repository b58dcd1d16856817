"""Texts of a page that its maker shows as they are, however long: every other one is cut and escaped (addons/views/html/render.py)."""


class Whole(str):
    """A text that is no use if it is cut, such as a line to copy."""


class Drawn(str):
    """A path of a picture, made here from numbers."""


def coordinate(value: float) -> str:
    """Return a coordinate of a picture, short."""
    return ("%.2f" % value).rstrip("0").rstrip(".")
