"""Mining can be stopped anywhere: what was sampled before is kept, and the result is the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from merit import artifacts, config
from merit.artifacts import Artifact
from merit.data.planted import PlantedConfig, shop, write
from merit.mining import MiningConfig
from merit.stages import mine as stage
from merit.stages.run import RunConfig, run


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Artifact]:
    folder = tmp_path_factory.mktemp("shop")
    write(shop(PlantedConfig(users=60), seed=7), folder)
    values = {
        "out": str(folder / "run"),
        "cache": str(folder / "cache"),
        "source": {
            "kind": "tables",
            "interactions": f"{folder}/interactions.parquet",
            "items": f"{folder}/items.parquet",
        },
        "labels": {"encoder": "hashed"},
        "backbone": {"width": 32, "layers": 1, "vocabulary": 1400},
        "stage_1": {"objective": "teacher-forcing", "steps": 3},
    }
    return dict(run(config.build(RunConfig, values), until="stage-1"))


def mined(made: dict[str, Artifact], out: Path) -> Artifact:
    return stage.mine(made["stage-1"], made["examples"], made["labels"], out, MiningConfig(samples=2), seed=7)


def test_parts_change_nothing_and_a_stopped_run_goes_on(
    made: dict[str, Artifact], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = mined(made, tmp_path / "whole")
    monkeypatch.setattr(stage, "PART", 40)
    committed, real = [], stage._commit

    def dies_after_three(*arguments: object) -> None:
        if len(committed) == 3:
            raise KeyboardInterrupt
        real(*arguments)  # type: ignore[arg-type]
        committed.append(arguments)

    monkeypatch.setattr(stage, "_commit", dies_after_three)
    with pytest.raises(KeyboardInterrupt):
        mined(made, tmp_path / "parts")
    assert not (tmp_path / "parts").exists()
    committed.clear()
    monkeypatch.setattr(stage, "_commit", lambda *arguments: (real(*arguments), committed.append(arguments)))
    again = mined(made, tmp_path / "parts")
    examples = int(whole.manifest.summary["examples"])
    assert len(committed) == -(-examples // 40) - 3  # only what was missing
    assert again.manifest.hash == whole.manifest.hash
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_the_report_says_how_many_were_bought_later(made: dict[str, Artifact], tmp_path: Path) -> None:
    told = mined(made, tmp_path / "mined").manifest.summary
    assert 0 < told["later_bought"] < told["mined"]
    assert artifacts.load(tmp_path / "mined", "mined").manifest.parents["generator"].kind == "generator"
