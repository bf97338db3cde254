"""CITATION.cff and the licence say what the package says."""

from __future__ import annotations

import tomllib
from pathlib import Path

import yaml

import merit

ROOT = Path(__file__).parents[2]
CITED = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))


def test_the_version_and_the_licence_are_those_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert CITED["version"] == merit.__version__ == project["version"]
    assert CITED["license"] == project["license"] == "Apache-2.0"
    text = (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert "Apache License" in text and "Version 2.0, January 2004" in text and "END OF TERMS AND CONDITIONS" in text


def test_the_paper_is_cited_beside_the_software() -> None:
    paper = CITED["preferred-citation"]
    assert CITED["type"] == "software" and paper["type"] == "article"
    assert paper["title"].startswith("MERIT: Mitigating Exposure Bias")
    assert [each["family-names"] for each in paper["authors"]] == ["Mahajan", "Sarkar", "Mandayam Comar"]
