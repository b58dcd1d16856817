"""Limits of time on a machine that is busy: what a test allows is what an idle machine needs with room to spare."""

import os


def stretch(seconds: float) -> float:
    """Return the seconds that a machine with as many waiting tasks as this one has takes for what an idle one does in so many."""
    return seconds * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
