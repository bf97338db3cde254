"""The tables of `make coverage` and `make mutation`: what is counted, and against whom."""

from __future__ import annotations

from collections import Counter
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest

from tests.docs.blocks import ROOT
from tests.docs.scripts import script


@pytest.fixture(scope="module")
def mutants() -> Any:
    return script("mutants")


@pytest.fixture(scope="module")
def covered() -> Any:
    return script("covered")


def _file(reached: int, lines: int) -> dict[str, Any]:
    return {"summary": {"covered_lines": reached, "num_statements": lines}}


def test_lines_are_counted_by_package(covered: Any) -> None:
    files = {
        "src/merit/data/a.py": _file(3, 4),
        "src/merit/data/sources/b.py": _file(1, 4),
        "src/merit/model.py": _file(10, 10),
        "src/merit/seeds.py": _file(0, 5),
    }
    found = covered.by_package({"files": files})
    assert found == {"data/": (4, 8), "modules that stand alone": (10, 15)}
    rows = [line.split() for line in covered.table(found).splitlines()[1:]]
    assert [row[-1] for row in rows] == ["50.0%", "66.7%", "60.9%"]


def test_a_mutant_counts_as_noticed_only_if_a_test_failed(mutants: Any) -> None:
    ends = Counter({"killed": 6, "timeout": 1, "survived": 2, "no tests": 1})
    assert mutants.score(ends) == pytest.approx(0.7)
    told = mutants.table({"objective": {"objective/a.py": ends, "objective/b.py": Counter(killed=10)}}).splitlines()
    assert told[1].split() == ["objective", "20", "17", "2", "1", "85.0%"]
    assert told[2].split() == ["objective/a.py", "10", "7", "2", "1", "70.0%"]


def test_every_subject_has_code_and_tests(mutants: Any) -> None:
    files = [file.relative_to(ROOT).as_posix() for file in (ROOT / "src").rglob("*.py")]
    for name, subject in mutants.SUBJECTS.items():
        for pattern in subject.code:
            assert any(fnmatch(file, pattern) for file in files), f"{name}: nothing is {pattern}"
        assert all((ROOT / tests).exists() for tests in subject.tests)


def test_a_module_of_a_subject_can_be_measured_alone(mutants: Any) -> None:
    assert mutants.subject_of("objective/targets") == (("src/merit/objective/targets.py",), ("tests/objective",))
    assert mutants.subject_of("campaigns/lift") == mutants.SUBJECTS["campaigns/lift"]
    assert mutants.subject_of("elsewhere/targets") is None and mutants.subject_of("elsewhere") is None


def test_the_folder_of_mutants_is_a_project_with_our_settings(mutants: Any, tmp_path: Path) -> None:
    import tomllib

    mutants.prepare(tmp_path, mutants.SUBJECTS["campaigns/lift"])
    settings = tomllib.loads((tmp_path / "pyproject.toml").read_text(encoding="utf-8"))["tool"]
    assert settings["mutmut"]["only_mutate"] == ["src/merit/campaigns/experiments/lift*.py"]
    assert settings["mutmut"]["pytest_add_cli_args_test_selection"] == ["tests/campaigns/experiments"]
    assert "pytest" in settings and (tmp_path / "src/merit/campaigns/experiments/lift.py").exists()
    before = (tmp_path / "pyproject.toml").stat().st_mtime_ns
    mutants.prepare(tmp_path, mutants.SUBJECTS["campaigns/lift"])
    assert (tmp_path / "pyproject.toml").stat().st_mtime_ns == before


def test_a_mutant_tells_its_module(mutants: Any) -> None:
    assert mutants.module_of("merit.objective.losses.x_set_loss__mutmut_7") == "objective/losses.py"
