"""Whether what a page says could be run: commands that exist with options that exist, settings that fit."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from pathlib import Path
from typing import Any

import typer

from merit import cli
from merit.bench.config import BenchConfig
from merit.campaigns.audiences.request import AudienceRequest
from merit.campaigns.experiments.design import ExperimentDesign
from merit.campaigns.experiments.statistics import Statistics
from merit.campaigns.sync.destination import DestinationFile
from merit.core import config
from merit.core.settings import RunConfig
from merit.labels import policy
from merit.service.people import TrustedProxy
from tests.docs.blocks import ROOT, Block, commands

TABLES = {"kind": "tables", "interactions": "log.csv", "items": "catalogue.csv"}


def parsed(block: Block) -> None:
    """Check a block without running it."""
    if block.language in ("toml", "json"):
        data(block.language, block.code)
    elif block.language == "python":
        compile(block.code, str(block), "exec")
    else:
        for each in commands(block):
            command(each.words)


def data(language: str, text: str) -> None:
    """Settings must fit what reads them; which that is can be told from their names."""
    values = tomllib.loads(text) if language == "toml" else json.loads(text)
    if "arms" in values:
        config.build(ExperimentDesign, values)
    elif "interests" in values or "lookalike" in values:
        config.build(AudienceRequest, values)
    elif "cells" in values:
        Statistics.model_validate(values)
    elif "override" in values:
        assert all(policy.Override.model_validate(each) for each in values["override"])
    elif "destination" in values:
        config.build(DestinationFile, values)
    elif "addresses" in values:
        config.build(TrustedProxy, values)
    elif "datasets" in values:
        config.build(BenchConfig, values)
    else:
        config.build(RunConfig, {"source": TABLES} | values)


def command(words: list[str]) -> None:
    words = [word for word in words if not re.fullmatch(r"[A-Z_]+=\S*", word)] if "=" in words[0] else words
    while words[0] in ("torchrun", "accelerate"):  # their own options, then ours
        words = ["merit", *words[words.index("merit.cli") + 1 :]]
    first = Path(words[0]).name
    if first == "merit":
        _merit(words[1:])
    elif words[:2] == ["python", "-m"]:
        _module(words[2], words[3:])
    elif first == "pytest":
        assert [word for word in words[1:] if word.startswith("tests")] == [
            word for word in words[1:] if word.startswith("tests") and (ROOT / word.split("::")[0]).exists()
        ]
    elif first == "make":
        makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
        for word in words[1:]:  # a goal, or a variable that the Makefile reads
            known = rf"\$\({word.partition('=')[0]}\)" if "=" in word else rf"^{word}:"
            assert re.search(known, makefile, re.MULTILINE), f"the Makefile has no {word}"
    elif words[:2] == ["pip", "install"]:
        _extras(words[2:])
    else:
        raise AssertionError(f"nothing here knows how to check `{shlex.join(words)}`")


def _merit(words: list[str]) -> None:
    """Down the groups to the command; its own parser refuses what it does not know."""
    command: Any = typer.main.get_command(cli.app)
    context: Any = None
    while hasattr(command, "commands"):
        context = command.make_context(command.name, list(words), parent=context)
        name, command, words = command.resolve_command(context, context._protected_args + context.args)
        assert command is not None, f"merit has no command {name}"
    context = command.make_context(command.name, list(words), parent=context)
    if context.command_path.split()[1] in ("run", "plan"):
        given = context.params["override"] or []
        file = ROOT / context.params["file"]
        values = tomllib.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
        config.build(RunConfig, {"source": TABLES} | values, given)


def _module(name: str, words: list[str]) -> None:
    """A module of ours, with flags that stand in it."""
    file = ROOT / f"{name.replace('.', '/')}.py"
    assert file.exists() or (ROOT / "src" / name.replace(".", "/")).exists(), f"there is no module {name}"
    known = "".join(each.read_text(encoding="utf-8") for each in (file, ROOT / "benchmarks/harness.py"))
    unknown = [flag for word in words if (flag := word.strip("[]")).startswith("--") and f'"{flag}"' not in known]
    assert not unknown, f"{name} has no {', '.join(unknown)}"


def _extras(words: list[str]) -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    for word in words:
        for asked in re.findall(r"merit\[([\w,]+)\]", word):
            assert set(asked.split(",")) <= set(extras), word
