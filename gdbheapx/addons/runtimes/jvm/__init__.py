"""Java virtual machines: HotSpot's tables of its own structures, its heap, classes and objects."""

from typing import List

from gdbheapx.analysis.census.world import Recogniser

RECOGNISERS: List[Recogniser] = []
