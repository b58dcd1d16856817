"""Standard input, output and error, as somebody else has left them."""

import os


def open_standard() -> None:
    """Make of each standard descriptor that the caller closed one that cannot be written: the next file that is opened would get its
    number."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDONLY)
            os.set_inheritable(number, True)
