"""One thread for torch, in child processes too: the models of the tests are so small that a second one only waits.

And one small trained run for all tests of a session.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run that has a model; read it, never write to it."""
    from tests import small_run  # brings torch along, which most tests do without

    return small_run.make(tmp_path_factory.mktemp("run"))


@pytest.fixture(scope="session")
def model(made: Path) -> object:
    import merit

    return merit.load(made)
