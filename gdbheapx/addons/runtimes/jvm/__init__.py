"""Java virtual machines: HotSpot's tables of its own structures, its heap, classes and objects."""

from typing import List, Sequence

from gdbheapx.analysis.census.world import CensusTarget, Inner, Recogniser


class JavaHeapRecogniser(Recogniser):
    """Recogniser of HotSpot's Java heap (JDK 11, 17, 21, 25): of its words only fields of objects hold blocks of malloc."""

    module, objects = "jvm", ("libjvm.so",)

    def inner(self, world: CensusTarget) -> Sequence[Inner]:
        """Return the Java heap, without blocks of its own."""
        from gdbheapx.addons.runtimes.jvm.java_holders import read_java_memory

        java = read_java_memory(world)
        return (java,) if java is not None else ()


RECOGNISERS: List[Recogniser] = [JavaHeapRecogniser()]
