"""`merit.fit`: from frames to answers, with the bytes of the command line, and without torch where it is quick."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pandas as pd
import polars as pl
import pytest

import merit
from merit.core import artifacts, presets
from merit.core.errors import ConfigError, DataError
from tests.small_run import QUICK, SMALL

WITHOUT_TORCH = """
import sys
import polars as pl
import merit

tables = [pl.read_parquet(f"{sys.argv[1]}/tables/{name}.parquet") for name in ("interactions", "items")]
settings = {"evaluation": {"resamples": 100}, "ranking": {"resamples": 100}}
model = merit.fit(*tables, preset="quick", out=sys.argv[2], cache=f"{sys.argv[2]}/cache", **settings)
user, text = model.users["user_id"][0], model.interests(model.users["user_id"][0], 3)["interest"][0]
model.audience(text, 110)
model.audience("a phrase that is no label", 110)
model.score([user], [text, "another phrase"])
model.explain(user, text, 3)
model.verticals(user)
new = model.with_histories(tables[0].head(3))
new.interests(new.rests_on["user_id"], 3)
from merit.campaigns.audiences.build import choose
from merit.campaigns.audiences.request import AudienceRequest
request = {"name": "a", "interests": [{"text": text}], "size": {"by": "count", "users": 110}}
choose(model, AudienceRequest.model_validate(request)).members
print(model.artifact.manifest.summary["preset"], model._labels.manifest.config["encoder"])
print([name for name in ("torch", "transformers", "sentence_transformers", "accelerate") if name in sys.modules])
"""


def frames(run: Path) -> list[pl.DataFrame]:
    return [pl.read_parquet(run / f"tables/{name}.parquet") for name in ("interactions", "items")]


def same_files(first: Path, second: Path) -> None:
    one, other = (artifacts.load(folder / "model").manifest for folder in (first, second))
    assert one.hash == other.hash
    files = [{name: record for name, record in each.files.items() if "manifest" not in name} for each in (one, other)]
    assert files[0] == files[1] and len(files[0]) > 15  # a manifest has the time


def test_quick_never_imports_torch(quick: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-c", WITHOUT_TORCH, str(quick), str(tmp_path / "run")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.splitlines() == ["quick minilm-numpy", "[]"]


def test_it_has_the_bytes_of_the_command_line(quick: Path, tmp_path: Path, command: object) -> None:
    """The same tables, named in a file, through `merit run`, in another folder."""
    lines = ['preset = "quick"', f'out = "{tmp_path / "run"}"', f'cache = "{tmp_path / "cache"}"', "seed = 3"]
    lines += ["[source]", 'kind = "tables"', f'interactions = "{quick}/tables/interactions.parquet"']
    lines += [f'items = "{quick}/tables/items.parquet"', "[labels]", 'encoder = "hashed"']
    lines += ["[evaluation]", "resamples = 100", "[ranking]", "resamples = 100", "[model.windows]", "sets = 4"]
    (tmp_path / "run.toml").write_text("\n".join(lines), encoding="utf-8")
    code, out, err = command("run", tmp_path / "run.toml")  # type: ignore[operator]
    assert code == 0, err
    assert "merit model interests" in out
    same_files(quick, tmp_path / "run")


def test_it_is_the_same_from_pandas_and_arrow_and_answers_in_pandas(quick: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(quick, run)
    interactions, items = (table.to_pandas() for table in frames(quick))
    settings = QUICK | {"cache": str(tmp_path / "cache")}
    model = merit.fit(interactions, items, out=run, **settings)
    answer = model.interests(model.users["user_id"][0], 3)
    assert isinstance(answer, pd.DataFrame) and isinstance(model.score(answer["user_id"][:1], ["x"]), pd.DataFrame)
    stored = merit.load(quick).interests(model.users["user_id"][0], 3)
    pd.testing.assert_frame_equal(answer, stored.to_pandas())
    arrow = merit.fit(*(table.to_arrow() for table in frames(quick)), out=run, **settings)
    assert isinstance(arrow.interests(model.users["user_id"][0], 3), pl.DataFrame)


def test_what_is_unchanged_is_kept(quick: Path, tmp_path: Path) -> None:
    run, settings = tmp_path / "run", QUICK | {"cache": str(tmp_path / "cache")}
    merit.fit(*frames(quick), out=run, **settings)
    before = (run / "timings.jsonl").read_text()
    merit.fit(*frames(quick), out=run, **settings)
    assert (run / "timings.jsonl").read_text() == before
    interactions, items = frames(quick)
    merit.fit(interactions[:-1], items, out=run, **settings)
    assert (run / "timings.jsonl").read_text() != before


def test_without_a_folder_the_model_lives_as_long_as_it_is_held(quick: Path, tmp_path: Path) -> None:
    model = merit.fit(*frames(quick), **QUICK | {"cache": str(tmp_path / "cache")})
    place, user = model.artifact.path.parent, model.users["user_id"][0]
    assert place.stat().st_mode & 0o077 == 0
    new = model.with_histories(frames(quick)[0].head(5))
    del model
    assert place.exists() and len(new.interests(new.rests_on["user_id"][0], 3)) == 3
    del new
    assert user and not place.exists()


def test_mistakes_are_told(tmp_path: Path, quick: Path) -> None:
    interactions, items = frames(quick)
    with pytest.raises(ConfigError, match="no preset 'fast'"):
        merit.fit(interactions, items, preset="fast")  # type: ignore[arg-type]
    with pytest.raises(DataError, match="The interactions: a table of"):
        merit.fit([1, 2], items)
    with pytest.raises(ConfigError, match="did you mean 'ranking'"):
        merit.fit(interactions, items, rankin={})
    with pytest.raises(DataError, match=r"no column .*timestamp"):
        merit.fit(interactions.drop("timestamp"), items, out=tmp_path / "run", **QUICK)


def test_the_card_says_which_preset_made_it(quick: Path, made: Path) -> None:
    assert "preset `quick`: the factor model in closed form" in merit.load(quick).card()
    assert "preset `standard`: a generator" in merit.load(made).card()


def test_a_notebook_shows_the_model(quick: Path) -> None:
    html = merit.load(quick)._repr_html_()
    assert "<th>Interests</th>" in html and "<td>quick</td>" in html and "<script" not in html


@pytest.mark.slow
def test_standard_is_what_the_command_line_makes(quick: Path, tmp_path: Path) -> None:
    """Run again over what `merit.fit` made, the pipeline keeps every artifact: settings and inputs are the same."""
    settings: Mapping[str, object] = SMALL | {"cache": str(tmp_path / "cache")}
    merit.fit(*frames(quick), preset="standard", out=tmp_path / "run", **settings)
    before = (tmp_path / "run/timings.jsonl").read_text()
    tables = {name: str(tmp_path / f"run/tables/{name}.parquet") for name in ("interactions", "items")}
    presets.run(presets.build({**settings, "out": str(tmp_path / "run"), "source": {"kind": "tables", **tables}}))
    assert (tmp_path / "run/timings.jsonl").read_text() == before


def test_import_is_light() -> None:
    """Third of a second at most, so nothing may come along that takes longer: polars alone does."""
    code = "import sys, merit; merit.__version__; print([name for name in ('polars', 'numpy') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
