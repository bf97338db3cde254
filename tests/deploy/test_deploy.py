"""Files that run merit elsewhere: what a linter would say of them, and that what they name is there.

hadolint has nothing to say about the Dockerfile either (version 2.15.1); it is under a licence that this project does
not take in.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.main import get_command

from merit.cli import app

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
SECRET = re.compile(r"password|secret|token|_key|dsn", re.IGNORECASE)


def steps() -> list[Any]:
    spec = spec_from_file_location("dockerfile_steps", ROOT / "scripts" / "dockerfile_steps.py")
    assert spec and spec.loader
    module = module_from_spec(spec)
    sys.modules["dockerfile_steps"] = module
    spec.loader.exec_module(module)
    return list(module.parse((DEPLOY / "Dockerfile").read_text()))


@pytest.fixture(scope="module")
def dockerfile() -> list[Any]:
    return steps()


def of(dockerfile: list[Any], name: str) -> list[Any]:
    return [step for step in dockerfile if step.name == name]


def test_the_image_has_two_stages_of_one_pinned_base(dockerfile: list[Any]) -> None:
    bases = [step.words[0] for step in of(dockerfile, "FROM")]
    assert bases == ["python:${PYTHON}"] * 2 and dockerfile[0].name == "ARG"
    assert re.fullmatch(r"PYTHON=3\.\d+-slim-[a-z]+", dockerfile[0].rest)


def test_the_service_is_nobody_and_is_watched(dockerfile: list[Any]) -> None:
    last = dockerfile[max(place for place, step in enumerate(dockerfile) if step.name == "FROM") :]
    (user,) = of(last, "USER")
    assert int(user.rest.split(":")[0]) > 1000
    assert all(step.name != "COPY" for step in last[last.index(user) :])
    (health,) = of(last, "HEALTHCHECK")
    assert "/health" in health.command[-1] and compile(health.command[-1], "healthcheck", "exec")
    entry, command = of(last, "ENTRYPOINT")[0].command, of(last, "CMD")[0].command
    assert entry == ["merit"]
    options = {name for parameter in get_command(app).commands["serve"].params for name in parameter.opts}  # type: ignore[attr-defined]
    assert command[0] == "serve" and {word for word in command if word.startswith("--")} <= options


def test_everything_installed_is_pinned_and_nothing_is_fetched_by_hand(dockerfile: list[Any]) -> None:
    installs = [step.rest for step in of(dockerfile, "RUN") if "pip install" in step.rest]
    assert len(installs) == 2 and all("-c constraints.txt" in rest for rest in installs)
    assert any("PIP_NO_CACHE_DIR=1" in step.rest for step in of(dockerfile, "ENV"))
    assert not of(dockerfile, "ADD") and not any(re.search(r"curl|wget|apt-get", step.rest) for step in dockerfile)
    extras = re.search(r"'\.\[(.*)\]'", " ".join(installs))
    project = (ROOT / "pyproject.toml").read_text()
    assert extras and all(f"\n{extra} = [" in project for extra in extras[1].split(","))


def test_nothing_secret_is_in_the_image_and_all_that_is_copied_is_there(dockerfile: list[Any]) -> None:
    assert not [step for step in dockerfile if step.name in ("ENV", "ARG") and SECRET.search(step.rest)]
    kept = (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines()
    assert "*" in kept
    for step in of(dockerfile, "COPY"):
        if not step.rest.startswith("--from"):
            for source in step.words[:-1]:
                assert (ROOT / source).exists() and f"!{source}" in kept


def test_the_compose_file_hands_secrets_on_and_opens_no_port_to_the_world() -> None:
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    services = compose["services"]
    assert set(services) == {"serve", "update", "postgres"}
    for service in services.values():
        secrets = {name: value for name, value in service.get("environment", {}).items() if SECRET.search(name)}
        assert all("${" in value for value in secrets.values()), secrets
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", []))
        assert re.search(r":[\w.]+", service["image"]) and "latest" not in service["image"]
    assert (DEPLOY / services["serve"]["build"]["context"] / services["serve"]["build"]["dockerfile"]).exists()
    assert services["serve"]["read_only"] and services["serve"]["cap_drop"] == ["ALL"]
    wait = services["update"]["command"][0].replace("$$", "$").split("sleep ")[1].split("; do")[0]
    seconds = subprocess.run(["bash", "-c", f"echo {wait}"], capture_output=True, text=True, check=True).stdout
    assert 0 < int(seconds) <= 86_400


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd here")
def test_systemd_takes_the_units(tmp_path: Path) -> None:
    for unit in DEPLOY.glob("merit-update.*"):
        text = unit.read_text().replace("/opt/merit/bin/merit update weekly.toml", "/bin/true")
        (tmp_path / unit.name).write_text(text)
    words = ["systemd-analyze", "verify", *map(str, sorted(tmp_path.iterdir()))]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0 and not done.stderr.strip(), done.stderr


def test_what_is_called_every_night_is_a_command() -> None:
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    texts = [compose["services"]["update"]["command"][0], (DEPLOY / "merit-update.service").read_text()]
    for text in texts:
        [words] = re.findall(r"\bmerit (update [\w.]+)", text)
        parsed(get_command(app), words.split())


def parsed(command: Any, words: list[str]) -> None:
    """Fails where a command or an option is not known."""
    while hasattr(command, "commands"):
        command, words = command.commands[words[0]], words[1:]
    command.make_context(command.name, words)
