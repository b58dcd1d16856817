"""How many statements of each folder of the product a run of coverage.py has met, as one table: `make coverage`."""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

from tabulate import tabulate


def main(report: Path) -> None:
    """Have coverage.py write its JSON there, and print the sums."""
    subprocess.run([sys.executable, "-m", "coverage", "json", "-q", "-o", str(report)], check=True)
    statements, run = Counter(), Counter()  # type: Counter[str], Counter[str]
    for path, file in json.loads(report.read_text())["files"].items():
        for folder in ("/".join(path.split("/")[:-1][:2]), "all"):
            statements[folder] += file["summary"]["num_statements"]
            run[folder] += file["summary"]["covered_lines"]
    folders = [*sorted(folder for folder in statements if folder != "all"), "all"]
    rows = [(folder, statements[folder], "%.0f %%" % (100 * run[folder] / max(1, statements[folder]))) for folder in folders]
    print(tabulate(rows, ["folder", "statements", "run by the unit tests"], colalign=("left", "right", "right")))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
