"""The share of lines that the tests reach, by package, from what coverage wrote: `make coverage`."""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from pathlib import Path

Lines = tuple[int, int]  # reached, all


def by_package(report: dict[str, dict[str, dict[str, dict[str, int]]]]) -> dict[str, Lines]:
    """Lines of each package of merit; modules that stand alone are counted together."""
    found: dict[str, Lines] = defaultdict(lambda: (0, 0))
    for file, told in report["files"].items():
        inside = Path(file).parts[Path(file).parts.index("merit") + 1 :]
        package = f"{inside[0]}/" if len(inside) > 1 else "modules that stand alone"
        reached, lines = found[package]
        counted = told["summary"]
        found[package] = (reached + counted["covered_lines"], lines + counted["num_statements"])
    return dict(sorted(found.items()))


def table(packages: dict[str, Lines]) -> str:
    """A row for each package, the least covered first, and one for all."""
    total = (sum(reached for reached, _ in packages.values()), sum(lines for _, lines in packages.values()))
    rows = sorted(packages.items(), key=lambda each: share(each[1]))
    told = [f"{'':<28}{'lines':>8}{'reached':>9}{'share':>9}"]
    return "\n".join(told + [_row(name, lines) for name, lines in [*rows, ("all", total)]])


def share(lines: Lines) -> float:
    """Of an empty package, all."""
    return lines[0] / lines[1] if lines[1] else 1.0


def _row(name: str, lines: Lines) -> str:
    return f"{name:<28}{lines[1]:>8}{lines[0]:>9}{share(lines):>9.1%}"


if __name__ == "__main__":
    print(table(by_package(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))))
