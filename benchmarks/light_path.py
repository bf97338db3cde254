"""What has to work without torch, step by step; run by the interpreter of a fresh environment (`benchmarks.light`).

    python light_path.py WORK ENCODER [STANDARD]

Prints a line of JSON: the seconds of each step, and the modules of torch that were loaded (none).
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

import merit
from merit.campaigns.audiences.build import choose
from merit.campaigns.audiences.request import AudienceRequest
from merit.campaigns.experiments import steps
from merit.campaigns.experiments.design import ExperimentDesign, OutcomeSpec
from merit.campaigns.experiments.power import Outlook
from merit.core import extras
from merit.retrieval.model import Model

HEAVY = ("torch", "transformers", "sentence_transformers", "accelerate")
PHRASE = "running on forest trails"
SMALL = {"evaluation": {"resamples": 100}, "ranking": {"resamples": 100}}
CAMPAIGN = ExperimentDesign(
    name="Light",
    arms={"expert": 0.5, "merit": 0.5},
    control="expert",
    treatment="merit",
    salt="light-2027",
    start=date(2027, 3, 1),
    days=7,
    minimum_effect=0.05,
    outcome=OutcomeSpec(column="bought"),
    outlook=Outlook(mean=0.1, users_per_day=5_000),
)


def merit_command(*words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "merit.cli", *map(str, words)], capture_output=True, text=True)


def check(work: Path) -> None:
    """`merit data check` reads both tables."""
    done = merit_command(
        "data", "check", "--interactions", work / "interactions.parquet", "--items", work / "items.parquet"
    )
    assert done.returncode in (0, 3) and "interactions" in done.stdout.lower(), done.stderr


def fit(work: Path, encoder: str) -> None:
    tables = [pl.read_parquet(work / f"{name}.parquet") for name in ("interactions", "items")]
    merit.fit(*tables, "quick", work / "run", seed=7, cache=str(work / "cache"), labels={"encoder": encoder}, **SMALL)


def answers(folder: Path, events: pl.DataFrame) -> None:
    """All that a model is asked, a phrase and new histories included."""
    model = merit.load(folder)
    user, text = model.users["user_id"][0], model.interests(model.users["user_id"][0], 5)["interest"][0]
    assert len(model.audience(text, 110)) == len(model.audience(PHRASE, 110)) == 110
    assert len(model.score([user], [text, PHRASE])) == 2 and len(model.explain(user, text, 3)) > 0
    new = model.with_histories(events.filter(pl.col("user_id") == user))
    assert new.rests_on["rests_on"].to_list() == ["history"] and len(new.interests(user, 5)) == 5
    assert "Interests" in model._repr_html_()


def audience(model: Model) -> None:
    text = model.interests(model.users["user_id"][0], 1)["interest"][0]
    request = {"name": "a", "interests": [{"text": text}], "size": {"by": "count", "users": 110}}
    assert len(choose(model, AudienceRequest.model_validate(request)).members) >= 100


def experiment(work: Path) -> None:
    """From the frozen design to the lift."""
    pl.DataFrame({"user_id": [f"u{number}" for number in range(20_000)]}).write_parquet(work / "users.parquet")
    design = steps.freeze(CAMPAIGN, work / "design")
    arms = steps.assign_users(design, work / "users.parquet", work / "arms")
    table = pl.read_parquet(arms.file("assignment.parquet"))
    rate = np.where(table["arm"] == "merit", 0.15, 0.1)
    bought = (np.random.default_rng(7).random(len(table)) < rate).astype(np.int64)
    table.with_columns(pl.Series("bought", bought)).write_parquet(work / "outcomes.parquet")
    outcomes = (work / "lift", work / "outcomes.parquet")
    lift = steps.analyse_campaign(design, *outcomes, assignment=arms, until=CAMPAIGN.end)
    assert "higher" in steps.analysis_of(lift).sentence or "%" in steps.analysis_of(lift).sentence


def doors(work: Path) -> None:
    """What needs an extra says which, in one sentence and with an exit code."""
    source = {"kind": "tables", "interactions": f"{work}/interactions.parquet", "items": f"{work}/items.parquet"}
    lines = ["[source]", *(f'{name} = "{value}"' for name, value in source.items())]
    (work / "standard.toml").write_text("\n".join(lines), encoding="utf-8")
    for words in (["run", work / "standard.toml"], ["plan", work / "standard.toml"], ["config", "schema"]):
        done = merit_command(*words)
        told = " ".join(done.stderr.split())
        assert done.returncode == 6 and "pip install 'merit-interests[train]'" in told, (words, done.stderr)
    if extras.missing("serve"):
        done = merit_command("serve", work / "run")
        assert done.returncode == 6 and "merit-interests[serve]" in " ".join(done.stderr.split()), done.stderr
    assert merit_command("doctor").returncode == 0


def main(work: Path, encoder: str, standard: Path | None) -> None:
    events = pl.read_parquet(work / "interactions.parquet").select("user_id", "item_id", "timestamp")
    path: dict[str, Callable[[], Any]] = {
        "data_check": lambda: check(work),
        "quick_fit": lambda: fit(work, encoder),
        "quick_answers": lambda: answers(work / "run", events),
        "audience": lambda: audience(merit.load(work / "run")),
        "experiment": lambda: experiment(work),
        "doors": lambda: doors(work),
    }
    if standard:
        path["standard_answers"] = lambda: answers(standard, events)
    seconds = {}
    for name, step in path.items():
        begin = time.perf_counter()
        step()
        seconds[f"{name}_seconds"] = round(time.perf_counter() - begin, 2)
    print(json.dumps(seconds | {"heavy_modules": [name for name in HEAVY if name in sys.modules]}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]) if len(sys.argv) > 3 else None)
