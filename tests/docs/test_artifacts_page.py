"""docs/reference/artifacts.md says which files an artifact of each kind has, and their columns: as the code does."""

from __future__ import annotations

import re
from fnmatch import fnmatch
from pathlib import Path

import polars as pl
import pytest

from merit.campaigns.audiences import build, export, request
from merit.campaigns.experiments import steps
from merit.campaigns.experiments.design import ExperimentDesign
from merit.core import artifacts, config
from merit.core.artifacts import MANIFEST, Artifact, Manifest

PAGE = (Path(__file__).parents[2] / "docs/reference/artifacts.md").read_text(encoding="utf-8")
PLACES = {"NNNNN": "[0-9]" * 5, "-N.": "-[0-9].", "SPLIT": "*", "FORM": "*"}
SOMETIMES = re.compile(r"^(?:if|with|of) ")  # a file that not every artifact of the kind has
DESIGN = {
    "name": "spring",
    "arms": {"old": 0.5, "new": 0.5},
    "control": "old",
    "treatment": "new",
    "salt": "spring-2027",
    "start": "2027-03-01",
    "days": 7,
    "minimum_effect": 0.02,
    "outcome": {"column": "bought"},
    "outlook": {"mean": 0.2},
}


def kinds() -> dict[str, dict[str, str]]:
    """Kind → pattern of a file → what the page says it holds."""
    found = {}
    for title, body in re.findall(r"^## ([a-z-]+)\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL):
        rows = re.findall(r"^\| (`.+?`) \| (.*) \|$", body, re.MULTILINE)
        found[title] = {_pattern(name): told for names, told in rows for name in re.findall(r"`([^`]+)`", names)}
    return found


def _pattern(name: str) -> str:
    for word, pattern in PLACES.items():
        name = name.replace(word, pattern)
    return name


@pytest.fixture(scope="module")
def written(made: Path, made_text: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Artifact]:
    """One of each kind, as the commands write them."""
    place = tmp_path_factory.mktemp("artifacts")
    import merit

    model = merit.load(made)
    asked = request.read(None, ["size.by=count", "size.users=120"], ["gaiters"])
    chosen = build.build(model, asked, place / "audience")
    sent = export.export(chosen, model, "csv", place / "send")
    runs = [each.parent for folder in (made, made_text) for each in sorted(folder.glob(f"*/{MANIFEST}"))]
    return [artifacts.load(each) for each in runs] + [
        chosen,
        sent,
        *_campaign(place),
    ]


def _campaign(place: Path) -> list[Artifact]:
    pl.DataFrame({"user_id": [f"u{number}" for number in range(4000)]}).write_parquet(place / "users.parquet")
    design = steps.freeze(config.build(ExperimentDesign, DESIGN), place / "design")
    assigned = steps.assign_users(design, place / "users.parquet", place / "arms")
    arms = pl.read_parquet(assigned.file("assignment.parquet"))
    arms.with_columns(bought=(pl.int_range(pl.len()) % 5 == 0).cast(pl.Int64)).write_parquet(place / "outcomes.parquet")
    agreed = steps.design_of(design)
    lift = steps.analyse_campaign(design, place / "lift", place / "outcomes.parquet", until=agreed.end)
    (place / "others.csv").write_text("campaign,lift,low,high\nwinter,0.002,-0.001,0.005\n", encoding="utf-8")
    pooled = steps.pool_campaigns([lift.path], place / "others.csv", place / "pool", steps.PoolConfig())
    return [design, assigned, lift, pooled]


def test_every_kind_is_on_the_page(written: list[Artifact]) -> None:
    assert {each.manifest.kind for each in written} == set(kinds())


def test_files_are_those_of_the_page(written: list[Artifact]) -> None:
    page = kinds()
    for each in written:
        listed = page[each.manifest.kind]
        unknown = [name for name in each.manifest.files if not any(fnmatch(name, pattern) for pattern in listed)]
        assert not unknown, f"{each.manifest.kind}: the page does not list {unknown}"
    for kind, listed in page.items():
        names = {name for each in written if each.manifest.kind == kind for name in each.manifest.files}
        for pattern, told in listed.items():
            assert SOMETIMES.match(told) or any(fnmatch(name, pattern) for name in names), f"{kind}: no {pattern}"


def test_columns_are_those_of_the_page(written: list[Artifact]) -> None:
    tried = 0
    for each in written:
        for pattern, told in kinds()[each.manifest.kind].items():
            named = re.findall(r"`(\w+)`", told)
            for name in each.manifest.files:
                if fnmatch(name, pattern) and name.endswith(".parquet") and named and "/" not in name:
                    columns = pl.read_parquet_schema(each.file(name))
                    left_out = set(named) - set(columns)  # nearest items only, or no prompts
                    assert set(columns) <= set(named) and left_out <= {"items", "prompt"}, f"{each.path}: {name}"
                    tried += 1
    assert tried > 20


def test_the_manifest_has_the_keys_of_the_page() -> None:
    table = PAGE.split("| `manifest.json`")[1].split("\n\n")[0]
    named = {key for row in table.splitlines()[2:] for key in re.findall(r"`(\w+)`", row.split("|")[1])}
    assert named == set(Manifest.model_fields) | {artifacts.SEAL}
