"""The distribution is merit-interests, what is imported and called is merit; and no printed line installs another's."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

import pytest

from merit.core import extras as installable

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
FOREIGN = re.compile(r"""\bmerit\\?\[[a-z{…]|\bpip3?\s+install\b[^\n`|;]*?['"\s]merit(?![\w.-])""")


def texts() -> list[Path]:
    names = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\n")
    suffixes = (".py", ".md", ".toml", ".ipynb", ".html", ".j2", ".js", ".yml", ".cff", "")
    return [path for name in names if name and (path := ROOT / name).suffix in suffixes and path != Path(__file__)]


def test_no_line_installs_the_package_of_somebody_else() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}: {line.strip()[:120]}"
        for path in texts()
        if path.is_file()
        for line in path.read_text(encoding="utf-8").splitlines()
        if FOREIGN.search(line)
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("line", "foreign"),
    [
        ("pip install 'merit[serve]'", True),
        ("pip install merit", True),
        ("pip install -U 'merit'.", True),
        (r"match=r'pip install merit\[demo\]'", True),
        ("pip install 'merit-interests[serve]'", False),
        ("the pip install is over: merit.load", False),
    ],
)
def test_such_lines_are_told_apart(line: str, foreign: bool) -> None:
    assert bool(FOREIGN.search(line)) == foreign


def test_metadata_name_it_and_its_extras() -> None:
    project = PROJECT["project"]
    assert project["name"] == "merit-interests"
    assert project["scripts"] == {"merit": "merit.cli:main"}
    extras = project["optional-dependencies"]
    assert set(installable.EXTRAS) <= set(extras)
    own = [each for extra in extras.values() for each in extra if each.startswith("merit")]
    assert own and all(set(re.split(r"[\[\],]", each)[1:-1]) <= set(extras) for each in own)


def test_what_builds_and_what_measures_is_pinned() -> None:
    assert all("==" in each for each in PROJECT["build-system"]["requires"])
    installs = re.findall(r"^.*\bpip install\b.*--target.*$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M)
    installs += re.findall(r"pip install --quiet pip-audit\S*", (ROOT / "Makefile").read_text(encoding="utf-8"))
    assert len(installs) == 3
    for line in installs:
        named = re.findall(r"(?:pytest|mutmut|pip-audit)[\w-]*(?:\S*)", re.sub(r"-c \S+", "", line))
        assert named and all(re.fullmatch(r"[\w-]+==[\w.]+;?", each) for each in named), line
