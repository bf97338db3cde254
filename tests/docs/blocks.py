"""Fenced blocks of README and docs: what they are, and whether they say why they are not run.

A line right above a block may say what becomes of it:

    <!-- file: spring.toml -->                      the block is a file that others of its page read
    <!-- parsed: trains for minutes -->             commands and options are checked, nothing is run
    <!-- run by tests/service/test_server.py -->    another test runs it
    <!-- not run: needs a GPU -->                   nothing is checked
    <!-- not code: ... -->                          a picture in letters

Without one, a block is run; `text` is what a command printed, and `mermaid` a picture.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(
    r"^(?P<indent> *)```(?P<language>\w*)[^\n]*\n(?P<code>.*?)^(?P=indent)```$", re.DOTALL | re.MULTILINE
)
MARKER = re.compile(r"<!-- (?P<what>file|parsed|run by|not run|not code):? (?P<why>.+?) -->\n+ *$")
NAMED = re.compile(r"^# (?P<name>[\w-]+\.(?:toml|py|csv))\n")  # a file says its name in its first line
EXIT_CODE = re.compile(r"# .*\bends with exit code (\d+)")
PRINTED = ("text", "mermaid")

Fate = Literal["run", "file", "parsed", "run by", "not run", "not code"]


@dataclass(frozen=True)
class Block:
    page: Path
    line: int
    language: str
    code: str
    fate: Fate
    why: str
    """The reason, the test that runs it, or the name of the file."""

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


@dataclass(frozen=True)
class Command:
    words: list[str]
    exit_code: int
    """That the page says to expect; 0 unless a comment says otherwise."""


def pages() -> list[Path]:
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(page: Path) -> list[Block]:
    """Every fenced block of a page, in order."""
    text = page.read_text(encoding="utf-8")
    return [_block(page, text, found) for found in BLOCK.finditer(text) if found["language"] not in PRINTED]


def _block(page: Path, text: str, found: re.Match[str]) -> Block:
    marker = MARKER.search(text[: found.start()])
    code = "".join(line.removeprefix(found["indent"]) for line in found["code"].splitlines(keepends=True))
    named = NAMED.match(code)
    fate: str = marker["what"] if marker else "file" if named else "run"
    why = marker["why"] if marker else named["name"] if named else ""
    line = text[: found.start()].count("\n") + 1
    return Block(page, line, found["language"], code, fate, why)  # type: ignore[arg-type]


def commands(block: Block) -> Iterator[Command]:
    """The commands of a shell block: continued lines are one, what `&&` joins are two, comments go."""
    for line in block.code.replace("\\\n", " ").splitlines():
        said = EXIT_CODE.search(line)
        words = shlex.split(line, comments=True)
        while words:
            stop = words.index("&&") if "&&" in words else len(words)
            yield Command(words[:stop], int(said[1]) if said else 0)
            words = words[stop + 1 :]
