"""The page of a watch: what is kept for it while it lasts, a fixed amount, and the file at its end."""

import time
from typing import List, Optional

from gdbheapx import __version__
from gdbheapx.extras.html import render
from gdbheapx.extras.watch import view
from gdbheapx.extras.watch.run import Over
from gdbheapx.extras.watch.samples import Sample, Watching
from gdbheapx.extras.watch.series import Curves
from gdbheapx.extras.watch.summary import STOPPED, History
from gdbheapx.output import Replacing
from gdbheapx.report.text import printable

OPTION = "--html"


class Page:
    """Takes samples, and writes a page of them once."""

    def __init__(self, path: str, watching: Watching, every_s: float, file: Optional[str] = None, left_out: int = 0) -> None:
        """HeapxError where there can be no page. `file`: the one that the samples are read from."""
        render.ready()
        Replacing(path, OPTION).drop()  # so that it is known now, not after a week
        self._path, self._watching, self._every_s, self.file = path, watching, every_s, file
        self.left_out = left_out
        self._curves = Curves()
        self._is_done = False

    def sample(self, sample: Sample) -> None:
        """One more."""
        self._curves.add(sample.elapsed_s, view.values(sample))

    def end(self, over: Over, history: History) -> List[str]:
        """Write it. Gives the line that says so; none where there was no sample, or it was written before."""
        if self._is_done or over.summary is None:
            return []
        self._is_done = True
        made = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
        seen = view.FinishedWatch(self._watching, self._every_s, over.why, over.summary, list(history.steps.kept), self._curves.points())
        told = view.view(seen, made, __version__, self.file, self.left_out)
        text = render.render("watch.html", told)
        Replacing(self._path, OPTION).finish(text.encode("utf-8", "backslashreplace"))
        return ["the page is in %s" % printable(self._path)]

    def stop(self, history: History) -> None:
        """Whatever ends the watch: what was sampled until then is not lost."""
        if not self._is_done:
            self.end(Over(STOPPED, history.summary(STOPPED, 0)), history)
