"""Java virtual machines: HotSpot's tables of its own structures, its heap, classes and objects."""

from typing import List, Sequence

from gdbheapx import problems
from gdbheapx.analysis.census.world import Inner, Recogniser, World
from gdbheapx.units import SentenceSize, make_sentence


class JavaHeapRecogniser(Recogniser):
    """Recogniser of HotSpot's Java heap (JDK 11, 17, 21, 25): of its words only fields of objects hold blocks of malloc."""

    module, objects = "jvm", ("libjvm.so",)

    def inner(self, world: World) -> Sequence[Inner]:
        """Return the Java heap, without blocks of its own."""
        from gdbheapx.addons.runtimes.jvm.java_holders import LEAST_UNPARSED, read_java_memory

        java = read_java_memory(world)
        if java is None:
            return ()
        for problem in java.problems:
            world.session.problem(problems.RUNTIME_UNREAD, None, "Java heap: %s" % problem, partial=False)
        if java.unparsed_bytes >= LEAST_UNPARSED:
            sentence = make_sentence("%s of the Java heap could not be read as objects", SentenceSize(java.unparsed_bytes))
            world.session.problem(problems.ROOTS_UNREAD, None, sentence, "blocks that only they reference count as leaked")
        return (java.inner,)


RECOGNISERS: List[Recogniser] = [JavaHeapRecogniser()]
