"""Unit tests of the glibc model stand on synthetic processes: no gdb, no process."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
