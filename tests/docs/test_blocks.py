"""Every code block and command of README and docs is run, or says why it is not (tests/docs/blocks.py)."""

from __future__ import annotations

import doctest
import re
import runpy
import shlex
import shutil
import sys
import tomllib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.docs.blocks import ROOT, Block, Command, blocks, commands, pages

PAGES = [page for page in pages() if blocks(page)]
RUN = [page for page in PAGES if any(block.fate == "run" for block in blocks(page))]


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tests.docs import world  # brings torch along

    return world.make(tmp_path_factory.mktemp("world"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_what_is_not_run_is_checked_and_says_why(page: Path) -> None:
    for block in blocks(page):
        if block.fate in ("not run", "parsed", "not code"):
            assert len(block.why) >= 8, f"{block}: say why"
        if block.fate in ("parsed", "file"):
            _assert_passes(block, _parse)
        if block.fate == "run by":
            test = ROOT / block.why.split("::")[0]
            assert block.page.name in test.read_text(encoding="utf-8"), f"{block}: {test.name} does not speak of it"


@pytest.mark.slow
@pytest.mark.parametrize("page", RUN, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_other_block_runs(page: Path, world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a copy of a small world, from the top of the page to its end, with the names that earlier blocks gave."""
    from tests.docs.world import SMALLER, campaign

    place = tmp_path / "place"
    shutil.copytree(world, place, symlinks=True)
    monkeypatch.syspath_prepend(place)
    monkeypatch.chdir(place)
    todo = [_replaced(block, SMALLER) for block in blocks(page)]
    for block in todo:
        if block.fate == "file":
            Path(block.why).write_text(block.code, encoding="utf-8")
            if "arms" in (values := tomllib.loads(block.code) if block.language == "toml" else {}):
                campaign(place, values)
    names: dict[str, Any] = {"__name__": page.stem}
    for block in todo:
        if block.fate == "run":
            _assert_passes(block, lambda each: _run(each, names, monkeypatch))


def _run(block: Block, names: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    if block.language in ("toml", "json"):
        _parse(block)
    elif block.language == "python" and ">>>" in block.code:
        test = doctest.DocTestParser().get_doctest(block.code, names, str(block), str(block.page), block.line)
        runner = doctest.DocTestRunner(verbose=False)
        runner.run(test, clear_globs=False)
        names |= test.globs
        assert runner.failures == 0
    elif block.language == "python":
        exec(compile(block.code, str(block), "exec"), names)
    else:
        for command in commands(block):
            code = _code_of(command, monkeypatch)
            assert code == command.exit_code, f"`{shlex.join(command.words)}` ended with {code}"


def _code_of(command: Command, monkeypatch: pytest.MonkeyPatch) -> int:
    """`merit …` and `python FILE` in this process: a process of its own would load torch each time."""
    from merit import cli

    words = command.words
    if words[0] not in ("merit", "python") or words[1].startswith("-"):
        raise AssertionError(f"`{shlex.join(words)}` cannot be run here: mark its block")
    monkeypatch.setattr(sys, "argv", words if words[0] == "merit" else words[1:])
    try:
        cli.main() if words[0] == "merit" else runpy.run_path(words[1], run_name="__main__")
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    return 0


def _parse(block: Block) -> None:
    from tests.docs import checking  # brings the settings of all stages along, and torch with them

    checking.parsed(block)


def _replaced(block: Block, smaller: dict[str, str]) -> Block:
    code = block.code
    for theirs, ours in smaller.items():
        code = re.sub(rf"{re.escape(theirs)}\b", ours, code)
    return replace(block, code=code)


def _assert_passes(block: Block, do: Callable[[Block], None]) -> None:
    try:
        do(block)
    except (Exception, SystemExit) as error:
        raise AssertionError(f"{block}: {type(error).__name__}: {error}") from error
