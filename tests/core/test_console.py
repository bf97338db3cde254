"""What is shown on a terminal, in a file and in a pipe."""

from __future__ import annotations

import os
import sys
from subprocess import run

WORDS = ["a label of many words " * 4, "another " * 9]
PROGRAM = f"from merit.core import console; console.show_table('Labels', ['left', 'right'], [{WORDS}])"


def shown(**environment: str) -> list[str]:
    own = {name: value for name, value in os.environ.items() if name != "COLUMNS"} | environment
    return run([sys.executable, "-c", PROGRAM], env=own, capture_output=True, text=True, check=True).stdout.splitlines()


def test_a_table_in_a_pipe_is_as_wide_as_it_must_be() -> None:
    (row,) = [line for line in shown() if "label" in line]
    assert all(words.strip() in row for words in WORDS)


def test_whoever_sets_a_width_gets_it() -> None:
    lines = shown(COLUMNS="60")
    assert max(map(len, lines)) == 60 and sum("label" in line for line in lines) > 1
