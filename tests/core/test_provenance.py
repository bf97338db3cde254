from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from merit import __version__
from merit.core import provenance


@pytest.mark.parametrize(
    ("typed", "told"),
    [
        (["bin/python", "bin/merit", "run", "demo.toml"], "merit run demo.toml"),
        (["bin/python3", "-m", "benchmarks.loss", "--quick"], "python3 -m benchmarks.loss --quick"),
    ],
)
def test_a_command_is_told_as_it_was_typed(typed: list[str], told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "orig_argv", typed)
    assert provenance.command() == told


def test_the_commit_is_that_of_the_code_and_a_changed_file_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(provenance, "ROOT", tmp_path)
    provenance.commit.cache_clear()
    assert provenance.commit() == f"merit {__version__}"
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@example.org"]
    (tmp_path / "file").write_text("one")
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "one"]):
        subprocess.run([*git, *words], check=True)
    provenance.commit.cache_clear()
    clean = provenance.commit()
    assert len(clean) >= 7 and not clean.endswith("+")
    (tmp_path / "file").write_text("two")
    provenance.commit.cache_clear()
    assert provenance.commit() == f"{clean}+"
    provenance.commit.cache_clear()
