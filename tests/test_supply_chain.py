"""What merit is made with is pinned, hashed, and under licences that somebody has looked at."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
A, B, C = "a" * 64, "b" * 64, "c" * 64
PAGE = f"""<a href="https://x/tea-1.0-py3-none-any.whl#sha256={A}" data-x="1">tea-1.0-py3-none-any.whl</a>
<a href="https://x/tea-1.0.tar.gz#sha256={B}">tea-1.0.tar.gz</a>
<a href="https://x/tea-1.1.tar.gz#sha256={C}">tea-1.1.tar.gz</a><a href="https://x/tea-0.9.exe#sha256={C}">tea-0.9.exe</a>"""


@pytest.fixture
def chain(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    spec = spec_from_file_location("supply_chain", ROOT / "scripts" / "supply_chain.py")
    assert spec and spec.loader
    module = module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "supply_chain", module)
    spec.loader.exec_module(module)
    yield module


@pytest.fixture
def small(chain: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """One pinned package, and an index that has three files of it."""
    monkeypatch.setattr(chain, "urlopen", lambda *_, **__: io.BytesIO(PAGE.encode()))
    monkeypatch.setattr(chain, "CONSTRAINTS", tmp_path / "constraints.txt")
    monkeypatch.setattr(chain, "LOCK", tmp_path / "requirements.lock")
    chain.CONSTRAINTS.write_text("# pinned\nTea==1.0\n")
    return chain


def test_everything_that_is_pinned_is_locked_with_hashes(chain: Any) -> None:
    locked = chain.locked()
    assert {name: version for name, (version, _) in locked.items()} == chain.pinned(), "Run `make lock`."
    assert all(hashes for _, hashes in locked.values())


def test_a_lock_has_the_files_of_its_release_and_no_other(small: Any, tmp_path: Path) -> None:
    assert small.digests("tea", "1.0") == [A, B]
    wheel = tmp_path / "tea-1.0+cpu-py3-none-any.whl"
    wheel.write_bytes(b"built elsewhere")
    small.LOCK.write_text(small.lock([wheel]))
    version, hashes = small.locked()["tea"]
    assert (version, hashes[:2]) == ("1.0", [A, B]) and hashes[2] == small.sha256(b"built elsewhere").hexdigest()
    assert small.check_lock() == []


def test_a_release_that_changed_is_told(small: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    small.LOCK.write_text(small.lock([]))
    changed = PAGE.replace(A, C).replace(B, C)
    monkeypatch.setattr(small, "urlopen", lambda *_, **__: io.BytesIO(changed.encode()))
    assert small.check_lock() == ["no file of tea has a hash of the lock any more"]
    small.CONSTRAINTS.write_text("Tea==1.1\nCup==2\n")
    assert len(small.check_lock()) == 3


def test_a_release_without_files_writes_no_lock(small: Any) -> None:
    small.CONSTRAINTS.write_text("Tea==7.0\n")
    with pytest.raises(SystemExit, match="no files of tea"):
        small.lock([])


def test_no_unexpected_licence_came_in(chain: Any) -> None:
    assert chain.unexpected() == {}


@pytest.mark.parametrize(
    ("told", "fine"),
    [
        ("MIT", True),
        ("GPL-3.0-only", False),
        ("AGPL-3.0-only OR MIT", True),
        ("MIT AND GPL-2.0-only", False),
        ("Apache-2.0 WITH LLVM-exception AND (MIT OR GPL-2.0-only)", True),
        ("LicenseRef-Proprietary", False),
        ("?", False),
    ],
)
def test_alternatives_and_joined_licences_are_told_apart(chain: Any, told: str, fine: bool) -> None:
    assert chain._allowed(told) is fine


@pytest.mark.parametrize(
    ("metadata", "told"),
    [
        ({"License-Expression": "MIT AND ISC"}, "MIT AND ISC"),
        ({"Classifier": "License :: OSI Approved :: BSD License"}, "BSD-3-Clause"),
        ({"License": "GNU General Public License v3\nlong text"}, "GNU General Public License v3"),
        ({}, "?"),
    ],
)
def test_a_licence_is_what_the_package_states(chain: Any, metadata: dict[str, str], told: str) -> None:
    class Metadata(dict[str, str]):
        def get_all(self, name: str, other: list[str]) -> list[str]:
            return [self[name]] if name in self else other

    assert chain.licence(SimpleNamespace(metadata=Metadata(metadata))) == told


def test_the_page_of_licences_is_that_of_what_is_installed(chain: Any) -> None:
    assert chain.LICENCES.read_text(encoding="utf-8") == chain.licences(), "Run `make licences`."


def test_the_bill_of_materials_names_every_package_once_and_who_needs_it(chain: Any) -> None:
    told = chain.sbom()
    refs = [each["bom-ref"] for each in told["components"]]
    assert len(refs) == len(set(refs)) == len(chain.installed())
    assert {each["ref"] for each in told["dependencies"]} == {"merit-interests", *refs}
    assert {ref for each in told["dependencies"] for ref in each["dependsOn"]} <= set(refs)
    own = next(each for each in told["dependencies"] if each["ref"] == "merit-interests")
    assert any(ref.startswith("pkg:pypi/polars@") for ref in own["dependsOn"])
    assert chain.sbom() == told
