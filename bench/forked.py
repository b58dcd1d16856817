"""Forked workers beside a parent that loaded much: `python bench/forked.py collector|counts`, for bench/advice.py and tests.

The workers of `collector` collect garbage, those of `counts` read each of the parent's texts. With `gc.freeze()` in the environment the
parent does that before the fork, with `the texts in one bytes object` it has them so. Prints a worker's pid and ends with its stdin.
"""

import gc
import os
import sys

OBJECTS, TEXTS, TEXT_BYTES, WORKERS = 100000, 40000, 900, 3


class Connection:
    """One of many objects that the parent has loaded."""

    __slots__ = ("address", "queue", "options")

    def __init__(self, number: int) -> None:
        self.address, self.queue, self.options = (number, str(number)), [number], {"number": number}


def work(loaded: object) -> None:
    """What a worker does."""
    if sys.argv[1] == "collector":
        gc.collect()
    elif isinstance(loaded, bytes):
        sum(len(loaded[at : at + TEXT_BYTES]) for at in range(0, len(loaded), TEXT_BYTES))
    elif isinstance(loaded, list):
        loaded.extend(list(loaded))  # one more reference to each


def main() -> None:
    """Load, fork, wait."""
    if sys.argv[1] == "collector":
        loaded: object = [Connection(number) for number in range(OBJECTS)]
    else:
        texts = (str(number).zfill(TEXT_BYTES) for number in range(TEXTS))
        loaded = "".join(texts).encode() if "the texts in one bytes object" in os.environ else list(texts)
    if "gc.freeze()" in os.environ:
        gc.freeze()
    workers = []
    for _ in range(WORKERS):
        ready, done = os.pipe()
        worker = os.fork()
        if not worker:
            work(loaded)
            os.write(done, b"x")
            os.read(sys.stdin.fileno(), 1)
            os._exit(0)
        os.read(ready, 1)
        workers.append(worker)
    print(workers[-1], flush=True)
    os.read(sys.stdin.fileno(), 1)
    for worker in workers:
        os.kill(worker, 9)


if __name__ == "__main__":
    main()
