"""What merit is made with: hashes of every file pip may fetch, licences, and a bill of materials.

    python scripts/supply_chain.py lock [--wheel FILE…]  # requirements.lock: constraints.txt with the index's digests
    python scripts/supply_chain.py check-lock            # the index asked again, and compared
    python scripts/supply_chain.py licences              # docs/licences.md, from the metadata of what is installed
    python scripts/supply_chain.py sbom [FILE]           # CycloneDX 1.6

`--wheel` adds the hash of a wheel that the index does not have, such as PyTorch's for CPUs.
"""

from __future__ import annotations

import json
import re
import sys
import tomllib
from argparse import ArgumentParser
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from html import unescape
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any
from urllib.request import urlopen
from uuid import NAMESPACE_URL, uuid5

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name, parse_sdist_filename, parse_wheel_filename
from packaging.version import Version

ROOT = Path(__file__).parents[1]
CONSTRAINTS, LOCK, LICENCES = ROOT / "constraints.txt", ROOT / "requirements.lock", ROOT / "docs" / "licences.md"
PROJECT = ROOT / "pyproject.toml"
INDEX = "https://pypi.org/simple"
LINK = re.compile(r'href="[^"]*#sha256=([0-9a-f]{64})"[^>]*>([^<]+)<')
HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")
# What may come in without a question. Anything else fails a test, for a person to judge.
ALLOWED = {
    *("MIT", "MIT-0", "MIT-CMU", "Apache-2.0", "ISC", "PSF-2.0", "CNRI-Python", "MPL-2.0", "BSL-1.0", "Unlicense"),
    *("Zlib", "CC0-1.0", "0BSD", "BSD-2-Clause", "BSD-3-Clause"),
}


def pinned() -> dict[str, str]:
    """Canonical name → version, of constraints.txt."""
    lines = [line.strip() for line in CONSTRAINTS.read_text(encoding="utf-8").splitlines()]
    pairs = (line.split("==") for line in lines if line and not line.startswith("#"))
    return {canonicalize_name(name): version for name, version in pairs}


# --- hashes ----------------------------------------------------------------------------------------------------------


def digests(name: str, version: str) -> list[str]:
    """sha256 of every file of a release, as the index tells them."""
    with urlopen(f"{INDEX}/{name}/", timeout=60) as answer:
        links = LINK.findall(answer.read().decode())
    return sorted(digest for digest, file in links if _version(unescape(file).strip()) == Version(version))


def _version(file: str) -> Version | None:
    try:
        return parse_wheel_filename(file)[1] if file.endswith(".whl") else parse_sdist_filename(file)[1]
    except ValueError:
        return None  # eggs and installers of long ago


def lock(wheels: list[Path]) -> str:
    """The constraints with hashes; pip refuses what has none of them (`pip install --require-hashes`)."""
    wanted = pinned()
    with ThreadPoolExecutor(8) as pool:
        found = dict(zip(wanted, pool.map(digests, wanted, wanted.values()), strict=True))
    for wheel in wheels:
        found[parse_wheel_filename(wheel.name)[0]].append(sha256(wheel.read_bytes()).hexdigest())
    if missing := [name for name, hashes in found.items() if not hashes]:
        sys.exit(
            f"{INDEX} has no files of {', '.join(missing)} in the version of constraints.txt. Nothing was written."
        )
    return _written(wanted, found)


def _written(wanted: dict[str, str], found: dict[str, list[str]]) -> str:
    head = "# Made by `make lock` from constraints.txt and the digests of PyPI. docs/security.md tells how to use it.\n"
    parts = [
        " \\\n    ".join([f"{name}=={version}", *(f"--hash=sha256:{each}" for each in dict.fromkeys(found[name]))])
        for name, version in wanted.items()
    ]
    return head + "\n".join(parts) + "\n"


def locked() -> dict[str, tuple[str, list[str]]]:
    """Name → version and hashes, of requirements.lock."""
    text = LOCK.read_text(encoding="utf-8").replace("\\\n", " ")
    entries = [line.split() for line in text.splitlines() if line and not line.startswith("#")]
    pairs = [(words[0].split("=="), HASH.findall(" ".join(words[1:]))) for words in entries]
    return {name: (version, hashes) for (name, version), hashes in pairs}


def check_lock() -> list[str]:
    """Where lock, constraints and index part. Files that a release got since are no fault: pip refuses them."""
    had = locked()
    with ThreadPoolExecutor(8) as pool:
        now = dict(zip(had, pool.map(lambda name: digests(name, had[name][0]), had), strict=True))
    told = [
        f"{name} {version} is not pinned in constraints.txt"
        for name, (version, _) in had.items()
        if pinned().get(name) != version
    ]
    told += [f"{name} is not locked" for name in pinned() if name not in had]
    return told + [
        f"no file of {name} has a hash of the lock any more" for name in had if not set(had[name][1]) & set(now[name])
    ]


# --- licences --------------------------------------------------------------------------------------------------------


def installed() -> dict[str, Distribution]:
    """What is pinned and installed here, by canonical name."""
    found = {canonicalize_name(each.name): each for each in distributions()}
    return {name: found[name] for name in sorted(pinned()) if name in found}


def licence(package: Distribution) -> str:
    """An SPDX expression where the package has one; otherwise what its classifiers, or its own words, say."""
    told = package.metadata
    if expression := told.get("License-Expression"):
        return str(expression)
    classified = [
        each.rpartition(" :: ")[2] for each in told.get_all("Classifier", []) if each.startswith("License ::")
    ]
    words = " OR ".join(dict.fromkeys(classified)) or str(told.get("License") or "").strip().splitlines()[0:1] or "?"
    return _spdx(words if isinstance(words, str) else words[0])


def _spdx(words: str) -> str:
    for pattern, name in SPELLINGS.items():
        words = re.sub(pattern, name, words, flags=re.IGNORECASE)
    return words


SPELLINGS = {
    r"^.*apache.*$": "Apache-2.0",
    r"^(the )?mit( license| licence)?$": "MIT",
    r"^mit license.*$": "MIT",
    r"^.*mozilla.*$": "MPL-2.0",
    r"^.*(python software foundation|psf).*$": "PSF-2.0",
    r"^.*isc.*$": "ISC",
    r"^.*bsd.*$": "BSD-3-Clause",
    r"^.*unlicense.*$": "Unlicense",
}


def unexpected() -> dict[str, str]:
    """Packages with a licence that nobody has looked at."""
    return {name: told for name, package in installed().items() if not _allowed(told := licence(package))}


def _allowed(told: str) -> bool:
    """One of the alternatives, and all of what is joined, must be allowed. Exceptions only ever give more rights."""
    alternatives = re.split(r"\bOR\b", told.replace("(", "").replace(")", ""))
    return any(
        all(part.partition(" WITH ")[0].strip() in ALLOWED for part in re.split(r"\bAND\b", each))
        for each in alternatives
    )


def licences() -> str:
    rows = [
        f"| {name} | {package.version.split('+')[0]} | {licence(package)} |" for name, package in installed().items()
    ]
    return "\n".join([INTRODUCTION, "| package | version | licence |\n|---|---|---|", *rows]) + "\n"


INTRODUCTION = """<!-- Made by `make licences`. -->
# Licences

merit is under Apache-2.0. What `make demo` and `make test` install beside it, with the licence each package states in
its metadata. A test fails when a package comes in under a licence that is not in `ALLOWED` of
`scripts/supply_chain.py`.
"""


# --- bill of materials -----------------------------------------------------------------------------------------------


def sbom() -> dict[str, Any]:
    """CycloneDX 1.6: the packages, their licences, and who needs whom; their hashes are in the lock."""
    packages = installed()
    components = [
        {
            "type": "library",
            "bom-ref": _purl(name, package),
            "name": name,
            "version": package.version,
            "purl": _purl(name, package),
            "licenses": [{"expression": told} if _is_spdx(told := licence(package)) else {"license": {"name": told}}],
        }
        for name, package in packages.items()
    ]
    own = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]
    root = {"type": "application", "bom-ref": own["name"], "name": own["name"], "version": own["version"]}
    refs = {name: _purl(name, package) for name, package in packages.items()}
    wanted = [*own["dependencies"], *(each for extra in own["optional-dependencies"].values() for each in extra)]
    needs = [{"ref": own["name"], "dependsOn": sorted({refs[each] for each in _names(wanted) if each in refs})}]
    needs += [
        {
            "ref": refs[name],
            "dependsOn": sorted({refs[each] for each in _names(package.requires or []) if each in refs}),
        }
        for name, package in packages.items()
    ]
    number = uuid5(NAMESPACE_URL, json.dumps(sorted(refs.values())))  # the same packages have the same number
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{number}",
        "version": 1,
        "metadata": {"component": root},
        "components": components,
        "dependencies": needs,
    }


def _is_spdx(told: str) -> bool:
    return all(re.fullmatch(r"[A-Za-z0-9.+-]+", word) for word in re.split(r"[\s()]+", told) if word)


def _purl(name: str, package: Distribution) -> str:
    return f"pkg:pypi/{name}@{package.version.replace('+', '%2B')}"


def _names(requirements: Iterable[str]) -> Iterator[str]:
    yield from (canonicalize_name(Requirement(each).name) for each in requirements)


def main() -> None:
    parser = ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("what", choices=("lock", "check-lock", "licences", "sbom"))
    parser.add_argument("file", nargs="?", type=Path, default=ROOT / "dist" / "sbom.cdx.json")
    parser.add_argument("--wheel", type=Path, action="append", default=[])
    asked = parser.parse_args()
    if asked.what == "check-lock":
        if told := check_lock():
            sys.exit("\n".join(told))
        return
    place, text = {
        "lock": lambda: (LOCK, lock(asked.wheel)),
        "licences": lambda: (LICENCES, licences()),
        "sbom": lambda: (asked.file, json.dumps(sbom(), indent=1) + "\n"),
    }[asked.what]()
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text, encoding="utf-8")
    print(place)


if __name__ == "__main__":
    main()
