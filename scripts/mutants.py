"""How many small faults the tests notice: `make mutation`, `make mutation OF=objective` for one package, or
`make mutation OF=objective/targets` for one of its modules.

mutmut plants one fault after the other (another operator, another number, None for an argument) and runs the tests that
reach it. It works in a folder below `.cache/mutants` and keeps what it knows there: the next time only changed code
and mutants that were not noticed are tried. Remove the folder after tests were taken away or weakened. A mutant that no
test reaches counts against the score like one that all tests pass.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import chdir
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
WORK = ROOT / ".cache" / "mutants"
SUMMARY = WORK / "summary.json"
READ = ("src", "tests", "docs")  # linked into the folder that mutmut copies from
NOTICED = ("killed", "timeout", "segfault", "suspicious")
"""What mutmut says of a mutant that did not pass. A fault that hangs or crashes the tests was noticed."""
AIM = 0.8


class Subject(NamedTuple):
    """Code that is changed, and the tests that should notice."""

    code: tuple[str, ...]
    tests: tuple[str, ...]


SUBJECTS = {
    "objective": Subject(("src/merit/objective/*",), ("tests/objective",)),
    "campaigns/lift": Subject(("src/merit/campaigns/experiments/lift*.py",), ("tests/campaigns/experiments",)),
    "evaluation": Subject(("src/merit/evaluation/*",), ("tests/evaluation",)),
}


def subject_of(name: str) -> Subject | None:
    """A package, or a module of one: its code alone, and all tests of the package."""
    package = name.rpartition("/")[0]
    if name in SUBJECTS or package not in SUBJECTS:
        return SUBJECTS.get(name)
    return Subject((f"src/merit/{name}.py",), SUBJECTS[package].tests)


def measure(name: str, processes: int) -> dict[str, Counter[str]]:
    """Plant the faults of one package. Module → how many mutants ended how."""
    place = folder_of(name)
    subject = subject_of(name)
    assert subject
    prepare(place, subject)
    again = [mutant for mutant, end in ends_of(place) if end not in NOTICED]  # tests may have come since
    command = [sys.executable, "-m", "mutmut", "run", "--max-children", str(processes)]
    subprocess.run(command, cwd=place, check=True)
    if again := [mutant for mutant, _ in ends_of(place) if mutant in again]:
        subprocess.run([*command, *again], cwd=place, check=True)
    found: dict[str, Counter[str]] = {}
    for mutant, end in ends_of(place):
        found.setdefault(module_of(mutant), Counter())[end] += 1
    return found


def folder_of(name: str) -> Path:
    """Where the mutants of a package are made."""
    return WORK / name.replace("/", "-")


def module_of(mutant: str) -> str:
    """merit.objective.losses.x_set_loss__mutmut_7 → objective/losses.py"""
    return mutant.rpartition(".")[0].removeprefix("merit.").replace(".", "/") + ".py"


def prepare(place: Path, subject: Subject) -> None:
    """A folder that mutmut takes for a project: links to ours, and our settings with its own below."""
    place.mkdir(parents=True, exist_ok=True)
    for name in READ:
        if not (place / name).exists():
            (place / name).symlink_to(ROOT / name)
    own = {
        "source_paths": ["src"],
        "only_mutate": list(subject.code),
        "also_copy": ["docs"],
        "pytest_add_cli_args_test_selection": list(subject.tests),
        "pytest_add_cli_args": ["-p", "no:cacheprovider", "-p", "no:xdist", "--hypothesis-profile=mutants"],
        "use_git_change_detection": False,
        "process_isolation": "forkserver",  # the threads of polars and torch do not survive a fork: all would hang
    }
    lines = [f"{key} = {json.dumps(value)}" for key, value in own.items()]  # lists, texts and booleans: TOML as well
    settings = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    text = "\n".join([settings, "[tool.mutmut]", *lines, ""])
    file = place / "pyproject.toml"
    if not file.exists() or file.read_text(encoding="utf-8") != text:
        file.write_text(text, encoding="utf-8")


def ends_of(place: Path) -> Iterator[tuple[str, str]]:
    """Every mutant and how it ended, as mutmut wrote it down beside each module."""
    from mutmut.stats import status_by_exit_code

    for file in sorted((place / "mutants" / "src").rglob("*.py.meta")):
        codes = json.loads(file.read_text(encoding="utf-8"))["exit_code_by_key"]
        yield from ((mutant, status_by_exit_code[code]) for mutant, code in codes.items())


def survivors(name: str) -> Iterator[str]:
    """What was changed in each mutant that was not noticed."""
    from mutmut.mutation.diff_apply import get_diff_for_mutant

    with chdir(folder_of(name)):
        for mutant, end in ends_of(Path()):
            if end not in NOTICED:
                lines = get_diff_for_mutant(mutant).splitlines()
                changed = [line for line in lines if line[:1] in ("-", "+") and line[:3] not in ("---", "+++")]
                yield "\n".join([f"{mutant}: {end}", *changed, ""])


def score(ends: Counter[str]) -> float:
    """The share of mutants that the tests noticed."""
    return sum(ends[end] for end in NOTICED) / sum(ends.values())


def table(packages: dict[str, dict[str, Counter[str]]]) -> str:
    """Packages with their modules: mutants, how many were noticed, survived or were reached by no test, the score."""
    rows = [f"{'':<34}{'mutants':>9}{'noticed':>9}{'survived':>10}{'untested':>10}{'score':>8}"]
    for name, modules in packages.items():
        rows.append(_row(name, _together(modules.values())))
        rows += [_row(f"  {module}", ends) for module, ends in modules.items()]
    return "\n".join(rows)


def _row(name: str, ends: Counter[str]) -> str:
    noticed = sum(ends[end] for end in NOTICED)
    untested = ends["no tests"]
    survived = ends.total() - noticed - untested
    return f"{name:<34}{ends.total():>9}{noticed:>9}{survived:>10}{untested:>10}{score(ends):>8.1%}"


def _together(many: Iterable[Counter[str]]) -> Counter[str]:
    return sum(many, Counter())


def _known() -> dict[str, dict[str, Counter[str]]]:
    """What the last summary says of packages, so that one can be measured after the other."""
    if not SUMMARY.exists():
        return {}
    kept = json.loads(SUMMARY.read_text(encoding="utf-8"))
    return {name: {key: Counter(ends) for key, ends in each["modules"].items()} for name, each in kept.items()}


def main() -> int:
    """Measure, write the summary, print the table. 1 if a package is below the aim."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "packages",
        nargs="*",
        metavar="PACKAGE",
        help=f"of {', '.join(SUBJECTS)}, or one of its modules, as objective/targets; all without one",
    )
    parser.add_argument("--processes", type=int, default=2, help="mutants that are tried at a time")
    parser.add_argument("--survivors", action="store_true", help="measure nothing; show what was not noticed last time")
    given = parser.parse_args()
    if unknown := {name for name in given.packages if not subject_of(name)}:
        parser.error(f"no package {', '.join(sorted(unknown))}; there are {', '.join(SUBJECTS)}")
    asked = given.packages or list(SUBJECTS)
    if given.survivors:
        print("\n".join(told for name in asked if folder_of(name).exists() for told in survivors(name)))
        return 0
    packages = _known()
    for name in asked:
        packages[name] = measure(name, given.processes)
        written = {each: _summary(packages[each]) for each in SUBJECTS if each in packages}
        SUMMARY.write_text(json.dumps(written, indent=2) + "\n", encoding="utf-8")
    print(table({name: packages[name] for name in asked}))
    print(f"As JSON: {SUMMARY.relative_to(ROOT)}. `make survivors` shows what was not noticed.")
    return int(any(score(_together(packages[name].values())) < AIM for name in asked))


def _summary(modules: dict[str, Counter[str]]) -> dict[str, object]:
    ends = _together(modules.values())
    return {"mutants": ends.total(), "score": round(score(ends), 4), "modules": modules}


if __name__ == "__main__":
    sys.exit(main())
