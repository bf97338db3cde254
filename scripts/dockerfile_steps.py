"""The steps of a Dockerfile in a new root, where no image can be built; then its health check against what it starts.

    debootstrap --variant=minbase --include=python3,python3-venv,ca-certificates bookworm root
    python scripts/dockerfile_steps.py deploy/Dockerfile --root root --serve runs/demo

Both as root. The root stands for the base image; every stage is run in it, one after the other. COPY, ENV, ARG, WORKDIR
and USER mean what they mean to Docker, RUN goes through chroot, and with --serve the ENTRYPOINT is started on a copy of
that run until HEALTHCHECK passes. --arg gives a build argument another value; --bind makes a folder of this machine
readable inside, such as one of wheels.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from argparse import ArgumentParser
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

PLACES = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
EXEC = ("CMD", "ENTRYPOINT", "HEALTHCHECK")


@dataclass
class Step:
    """An instruction with its rest, continued lines joined."""

    line: int
    name: str
    rest: str

    @property
    def words(self) -> list[str]:
        return shlex.split(self.rest)

    @property
    def command(self) -> list[str]:
        """The JSON of an instruction in exec form, whatever options are in front."""
        command: list[str] = json.loads(self.rest[self.rest.index("[") :])
        return command


def parse(text: str) -> Iterator[Step]:
    """The steps of a Dockerfile; comments are left out, inside a continued line too."""
    whole, start = "", 0
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("#") or not line.strip():
            continue
        start = start if whole else number
        whole += line.rstrip("\\").strip() + " "
        if not line.endswith("\\"):
            name, _, rest = whole.strip().partition(" ")
            yield Step(start, name.upper(), rest.strip())
            whole = ""


@dataclass
class State:
    """What holds for the steps of a stage that follow."""

    environment: dict[str, str] = field(default_factory=lambda: {"PATH": PLACES})
    folder: str = "/"
    user: str = "0:0"
    commands: dict[str, list[str]] = field(default_factory=dict)


def run(dockerfile: Path, root: Path, arguments: dict[str, str], context: Path) -> State:
    """All steps; the state after the last."""
    state, known = State(), dict(arguments)
    for step in parse(dockerfile.read_text(encoding="utf-8")):
        print(f"line {step.line}: {step.name} {step.rest}", flush=True)
        if step.name == "FROM":
            state = State()
        elif step.name == "ARG":
            name, _, value = step.rest.partition("=")
            known.setdefault(name, value)
            state.environment |= {name: known[name]}
        elif step.name == "ENV":
            pairs = (word.partition("=")[::2] for word in step.words)
            state.environment |= {name: value.replace("$PATH", state.environment["PATH"]) for name, value in pairs}
        elif step.name == "WORKDIR":
            state.folder = step.rest
            within(root, step.rest).mkdir(parents=True, exist_ok=True)
        elif step.name == "USER":
            state.user = step.rest
        elif step.name == "COPY":
            copy(step, state, root, context)
        elif step.name == "RUN":
            inside(root, state, ["/bin/sh", "-c", step.rest]).check_returncode()
        elif step.name in EXEC:
            state.commands[step.name] = step.command
        elif step.name != "EXPOSE":
            sys.exit(f"line {step.line}: {step.name} is not known here")
    return state


def within(root: Path, path: str) -> Path:
    return root / path.lstrip("/")


def copy(step: Step, state: State, root: Path, context: Path) -> None:
    """Of another stage nothing has to be copied: there is one root for all."""
    words = [word for word in step.words if not word.startswith("--")]
    if len(words) < len(step.words):
        assert words[0] == words[1], f"line {step.line}: a stage's file keeps its place here"
        return
    target = within(root, words[-1] if words[-1].startswith("/") else f"{state.folder}/{words[-1]}")
    for word in words[:-1]:
        source = context / word
        if source.is_dir():
            shutil.copytree(source, target, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            place = target / source.name if words[-1].endswith(("/", ".")) else target
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, place)


def started(root: Path, state: State, command: list[str]) -> subprocess.Popen[bytes]:
    """A command in the root, as the user and in the folder of the state."""
    user, _, group = state.user.partition(":")
    script = f"cd {shlex.quote(state.folder)} && exec {shlex.join(command)}"
    words = ["chroot", f"--userspec={user}:{group or user}", str(root), "/bin/sh", "-c", script]
    inherited = {
        name: value for name, value in os.environ.items() if name.startswith("PIP_") or "proxy" in name.lower()
    }
    return subprocess.Popen(words, env=inherited | state.environment)


def inside(root: Path, state: State, command: list[str]) -> subprocess.CompletedProcess[bytes]:
    process = started(root, state, command)
    return subprocess.CompletedProcess(command, process.wait())


def checked(root: Path, state: State, model: Path, patience: float = 180) -> float:
    """Start what the image starts, over a copy of a run, until its health check passes; the seconds it took."""
    shutil.copytree(model, within(root, f"{state.folder}/run"), dirs_exist_ok=True)
    subprocess.run(["chown", "-R", state.user, str(within(root, state.folder))], check=True)
    begin = time.monotonic()
    server = started(root, state, [*state.commands["ENTRYPOINT"], *state.commands["CMD"]])
    try:
        while inside(root, state, state.commands["HEALTHCHECK"]).returncode:
            if server.poll() is not None or time.monotonic() - begin > patience:
                sys.exit("The health check did not pass.")
            time.sleep(2)
        return time.monotonic() - begin
    finally:
        server.terminate()
        server.wait()


def prepare(root: Path, binds: list[str]) -> None:
    """What a base image of Python has and Debian has not, and what this machine needs to fetch packages."""
    if os.geteuid():
        sys.exit("chroot needs root.")
    python = within(root, "/usr/local/bin/python")
    if not python.exists():
        python.symlink_to("/usr/bin/python3")
    for path in ("/etc/resolv.conf", "/etc/pip.conf", "/etc/hosts", "/etc/ssl/certs/ca-certificates.crt", *binds):
        source, target = Path(path), within(root, path)
        if source.is_dir():
            shutil.copytree(source, target, dirs_exist_ok=True, copy_function=os.link)
        elif source.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)
    for device in ("null", "urandom", "random", "zero"):
        if not within(root, f"/dev/{device}").exists():
            subprocess.run(["cp", "-a", f"/dev/{device}", str(within(root, "/dev"))], check=True)


def main() -> None:
    parser = ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("dockerfile", type=Path)
    parser.add_argument("--root", type=Path, required=True)
    parser.add_argument("--context", type=Path, default=Path())
    parser.add_argument("--arg", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--bind", action="append", default=[], help="a folder on the file system of the root")
    parser.add_argument("--serve", type=Path, help="a run to start the image's service on")
    given = parser.parse_args()
    root = given.root.resolve()
    prepare(root, given.bind)
    begin = time.monotonic()
    state = run(given.dockerfile, root, dict(word.split("=", 1) for word in given.arg), given.context)
    print(f"all steps: {time.monotonic() - begin:.0f} s")
    if given.serve:
        print(f"healthy after {checked(root, state, given.serve):.0f} s")


if __name__ == "__main__":
    main()
