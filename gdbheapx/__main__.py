"""python -m gdbheapx is the command line."""

import sys

from gdbheapx.cli import main

if __name__ == "__main__":
    sys.exit(main())
