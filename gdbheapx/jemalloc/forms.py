"""How one build is called, and how it prints: what recognising it needs of the records."""

from typing import NamedTuple, Optional


class PublicNames(NamedTuple):
    """By which names a program reaches one jemalloc: what its build put before `mallctl`, and where it looks for options."""

    prefix: Optional[str]
    """Of `malloc` and `mallctl`: empty, `je_`, `_rjem_`, `je_arrow_`; None if nothing tells."""
    conf_variable: Optional[str]
    """The environment variable with its options, such as `JE_ARROW_MALLOC_CONF`; None if nothing tells."""

    def call(self, arguments: str) -> str:
        """mallctl with these arguments, as it is written in the program."""
        return (
            "mallctl(%s), under this build's own prefix, which is unknown" % arguments
            if self.prefix is None
            else "%smallctl(%s)" % (self.prefix, arguments)
        )

    def setting(self, options: str) -> str:
        """What to put into the environment."""
        return (
            "%s in this build's own MALLOC_CONF, whose prefix is unknown" % options
            if self.conf_variable is None
            else "%s=%s" % (self.conf_variable, options)
        )


class PrintForm(NamedTuple):
    """How the tables of malloc_stats_print's text look (stats.c); what no figure tells."""

    bin_width: int
    """Columns `allocated`, `nmalloc` and `ndalloc` of bins."""
    rate_width: int
    """The rates of `small:`, `large:` and `total:` rows behind nmalloc and ndalloc."""
    skips_unused_bins: bool
    """Bins that never had a slab have no row."""
