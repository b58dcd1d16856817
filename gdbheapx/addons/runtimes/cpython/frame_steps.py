"""Steps from frames, generators and coroutines to their variables."""

from typing import Optional

from gdbheapx.addons.runtimes.cpython.frames import Frames
from gdbheapx.addons.runtimes.cpython.masks import FRAME_DATA, GENERATORS
from gdbheapx.addons.runtimes.cpython.place import CELL, OBJECT, Place, move_to, thing
from gdbheapx.addons.runtimes.cpython.types import WORD, PyType
from gdbheapx.addons.runtimes.cpython.values import Values, quoted
from gdbheapx.analysis.naming.namer import ATTRIBUTE, LOCAL, PathMove


class FrameSteps:
    """Of one process."""

    def __init__(self, values: Values) -> None:
        self._values, self.frames = values, Frames(values)

    def of_frame(self, place: Place, py_type: PyType, offset: int, pointer: int) -> Optional[PathMove]:
        """A frame object's variables: since 3.11 where its function has ended and left it what it had."""
        frame = self._own_frame(place.address, py_type)
        return self.local(frame, place.address + offset, place.opening, pointer) if frame else None

    def _own_frame(self, address: int, py_type: PyType) -> int:
        """Where the frame is that a frame object has in itself; 0: it lies elsewhere."""
        if self._values.layout.release < 11:
            return address
        own = address + py_type.basic_bytes - self._values.layout.frame.locals
        return own if self._values.word(address + FRAME_DATA) == own else 0

    def end(self, place: Place, py_type: PyType) -> Optional[int]:
        """Where what a frame object or a generator has in itself ends; None of other objects."""
        release = self._values.layout.release
        if self._values.is_named(place.address, "frame"):
            own = self._own_frame(place.address, py_type)
            return self.frames.stack_end(own) if own else place.address + py_type.basic_bytes - self._values.layout.frame.locals
        if release >= 11 and self._values.is_named(place.address, *GENERATORS):
            return self.frames.stack_end(place.address + self._values.layout.generator_frame)
        return None

    def of_generator(self, place: Place, offset: int, pointer: int) -> Optional[PathMove]:
        """Its frame up to 3.10, then what is in that: variables, and last what a coroutine waits for."""
        values, frames = self._values, self.frames
        kind = next((name for name in GENERATORS if values.is_named(place.address, name)), "generator")
        at = place.address + values.layout.generator_frame
        frame = values.word(at) if values.layout.release < 11 else at
        opening = "" if kind == "generator" else "%s %s(): " % (kind.replace("_", " "), frames.function(frame))
        if values.layout.release < 11:
            text = {"generator": ".gi_frame", "coroutine": ".cr_frame"}.get(kind, ".ag_frame")
            return move_to(ATTRIBUTE, text, Place(OBJECT, pointer, opening=opening)) if place.address + offset == at else None
        local = self.local(frame, place.address + offset, opening, pointer, ".gi_frame")
        is_last = place.address + offset == frames.stack_end(frame) - WORD
        return move_to(ATTRIBUTE, ".cr_await", thing(pointer)) if local is None and is_last and kind == "coroutine" else local

    def local(self, frame: int, word_at: int, opening: str, pointer: int, before: str = "") -> Optional[PathMove]:
        """A variable; what a cell has is called as the variable, the cell `.<cell rows>`."""
        local = next((local for local in self.frames.locals(frame) if local.place == word_at), None)
        if local is None:
            return None
        text = local.name if opening else "%s.f_locals[%s]" % (before, quoted(local.name))
        if self._values.is_named(pointer, "cell"):
            return move_to(LOCAL, ".<cell %s>" % local.name, Place(OBJECT, pointer, view=CELL, text=text, opening=opening), is_open=True)
        return move_to(LOCAL, text, thing(pointer), opening=opening)
