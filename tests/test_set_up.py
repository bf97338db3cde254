"""Set-up takes torch for CPUs, says where from, and never takes gigabytes of CUDA unasked.

The interpreter is a script that notes what pip is told, and answers its dry run as pip does: with packages of NVIDIA,
as of PyPI's wheel for Linux, or without, as of a wheel in a folder.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "scripts" / "install-torch"
FAKE = """#!/bin/sh
echo "$*" >> {log}
case "$*" in
  *--dry-run*) {dry_run} ;;
  *whl/cpu*) exit {cpu_index} ;;
esac
"""


def report(*names: str) -> str:
    return "echo '" + json.dumps({"install": [{"metadata": {"name": name}} for name in names]}) + "'"


@pytest.fixture
def tools(tmp_path: Path) -> str:
    """A PATH without nvidia-smi, whatever this machine has."""
    (tmp_path / "tools").mkdir()
    for name in ("grep", "printf"):
        found = subprocess.run(["which", name], capture_output=True, text=True, check=True).stdout.strip()
        (tmp_path / "tools" / name).symlink_to(found)
    return str(tmp_path / "tools")


def installed(tmp_path: Path, tools: str, dry_run: str, cpu_index: int = 0, **env: str) -> tuple[int, list[str], str]:
    """The exit code, what pip was told after the dry run, and what a person is told."""
    log, python = tmp_path / "log", tmp_path / "python"
    python.write_text(FAKE.format(log=log, dry_run=dry_run, cpu_index=cpu_index))
    python.chmod(0o755)
    told = {"PATH": tools} | env
    done = subprocess.run(["/bin/sh", SCRIPT, python], env=told, capture_output=True, text=True)
    return done.returncode, [line for line in log.read_text().splitlines() if "--dry-run" not in line], done.stderr


PLAIN = "-m pip install --quiet --disable-pip-version-check -c constraints.txt torch"
CPU = PLAIN.replace(" torch", " --index-url https://download.pytorch.org/whl/cpu torch")


def test_a_wheel_without_cuda_is_taken_as_it_is(tmp_path: Path, tools: str) -> None:
    assert installed(tmp_path, tools, report("torch", "sympy")) == (0, [PLAIN], "")


def test_a_dry_run_that_fails_changes_nothing(tmp_path: Path, tools: str) -> None:
    assert installed(tmp_path, tools, "exit 1") == (0, [PLAIN], "")


@pytest.mark.parametrize("name", ["nvidia-cublas-cu12", "cuda-bindings"])
def test_instead_of_cuda_the_cpu_build_is_taken_and_told(tmp_path: Path, tools: str, name: str) -> None:
    code, lines, told = installed(tmp_path, tools, report("torch", name))
    assert (code, lines) == (0, [CPU])
    assert "without a GPU" in told and "download.pytorch.org/whl/cpu" in told


def test_where_no_cpu_build_can_be_had_nothing_is_installed(tmp_path: Path, tools: str) -> None:
    code, lines, told = installed(tmp_path, tools, report("torch", "nvidia-cublas-cu12"), cpu_index=1)
    assert (code, lines) == (1, [CPU])
    assert "nothing was installed" in told and "MERIT_TORCH=cuda" in told and "PIP_FIND_LINKS" in told


def test_cuda_is_taken_where_it_is_asked_for_or_of_use(tmp_path: Path, tools: str) -> None:
    cuda = report("torch", "nvidia-cublas-cu12")
    assert installed(tmp_path, tools, cuda, MERIT_TORCH="cuda") == (0, [PLAIN], "")
    (tmp_path / "log").unlink()
    (Path(tools) / "nvidia-smi").symlink_to(os.path.realpath("/bin/true"))
    assert installed(tmp_path, tools, cuda) == (0, [PLAIN], "")
