"""One thread for torch, in child processes too: the models of the tests are so small that a second one only waits.

And one small trained run for all tests of a session.
"""

import os
import sys
from collections.abc import Callable

os.environ.setdefault("OMP_NUM_THREADS", "1")

from pathlib import Path

import pytest
from filelock import FileLock
from hypothesis import Phase
from hypothesis import settings as hypothesis_settings

from tests import postgres as servers
from tests.postgres import Postgres

hypothesis_settings.register_profile("mutants", phases=[Phase.explicit, Phase.generate])  # a failure is enough

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="session")
def once(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, Callable[[Path], object]], Path]:
    """A folder of that name, filled by the first process that asks for it and read by all; never write to it."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base

    def folder(name: str, make: Callable[[Path], object]) -> Path:
        place, done = shared / f"once-{name}", shared / f"once-{name}.done"
        with FileLock(shared / f"once-{name}.lock"):
            if not done.exists():
                place.mkdir()
                make(place)
                done.touch()
        return place

    return folder


@pytest.fixture(scope="session")
def made(once: Callable[[str, Callable[[Path], object]], Path]) -> Path:
    """The folder of a run that has a model; read it, never write to it."""
    from tests import small_run  # brings torch along, which most tests do without

    return once("run", small_run.make) / "run"


@pytest.fixture(scope="session")
def made_text(once: Callable[[str, Callable[[Path], object]], Path]) -> Path:
    """The same of a run whose generator is a language model."""
    from tests import small_run

    return once("run-text", small_run.make_text) / "run"


@pytest.fixture(scope="session")
def quick(once: Callable[[str, Callable[[Path], object]], Path]) -> Path:
    """The folder of a quick run, made by `merit.fit`; read it, never write to it."""
    from tests import small_run

    return once("quick", small_run.make_quick) / "run"


@pytest.fixture(scope="session")
def postgres(once: Callable[[str, Callable[[Path], object]], Path]) -> Postgres:
    """A running PostgreSQL, one for all processes of the session; skipped where none can be started."""
    if reason := servers.why_not():
        pytest.skip(reason)
    session = os.getppid() if "PYTEST_XDIST_WORKER" in os.environ else os.getpid()
    return servers.read(once("postgres", lambda folder: servers.start(folder, session)))


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """`merit WORDS` in a folder of its own: exit code, and what it said on both channels, on one line each."""
    from merit import cli

    monkeypatch.chdir(tmp_path)

    def call(*words: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["merit", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
            raise SystemExit(0)
        out, err = capsys.readouterr()
        code = ended.value.code
        return (code if isinstance(code, int) else 0), " ".join(out.split()), " ".join(err.split())

    return call


@pytest.fixture(scope="session")
def model(made: Path) -> object:
    import merit

    return merit.load(made)
