"""Without the extras: what needs none works, and every door names the one that is missing."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import polars as pl
import pytest

from merit.core import extras
from merit.core.errors import MissingDependency
from merit.report import charts

ROOT = Path(__file__).parents[2]
HIDDEN = [module for extra, modules in extras.EXTRAS.items() if extra not in ("phrases", "dev") for module in modules]
HIDING = f"import sys\nfor name in {HIDDEN}: sys.modules[name] = None\n"
# What a model of the standard preset answers where nothing but the base and MiniLM's weights is installed.
STANDARD = f"""{HIDING}
import json
import merit
model = merit.load(sys.argv[1])
user = model.users["user_id"][0]
text = model.interests(user, 3)["interest"][0]
new = model.with_histories(__import__("polars").DataFrame({{"user_id": ["a"], "title": [text]}}))
print(json.dumps([
    model.score([user], [text, "a phrase"])["probability"].to_list(),
    model.explain(user, text, 3)["effect"].to_list(),
    new.interests("a", 5)["interest"].to_list(),
    model.needs_torch,
]))
"""


def run(code: str, *words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code, *map(str, words)], capture_output=True, text=True)


def test_all_extras_can_be_installed_and_none_is_in_the_base() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert set(extras.EXTRAS) <= set(project["optional-dependencies"])
    base = " ".join(project["dependencies"]).replace("-", "_").lower()
    assert not [module for module in extras.OF_MODULE if module in base.replace("scikit_learn", "sklearn")]


def test_a_standard_model_answers_as_with_torch(made: Path) -> None:
    done = run(STANDARD, made)
    assert done.returncode == 0, done.stderr[-2000:]
    scores, effects, interests, needs_torch = json.loads(done.stdout)
    import merit

    model = merit.load(made)
    user = model.users["user_id"][0]
    text = model.interests(user, 3)["interest"][0]
    assert scores == model.score([user], [text, "a phrase"])["probability"].to_list() and needs_torch is False
    assert effects == model.explain(user, text, 3)["effect"].to_list()
    new = model.with_histories(pl.DataFrame({"user_id": ["a"], "title": [text]}))
    assert interests == new.interests("a", 5)["interest"].to_list()


@pytest.mark.slow
def test_a_model_that_reads_text_says_what_it_needs(made_text: Path) -> None:
    done = run(STANDARD, made_text)
    assert done.returncode == 1 and "pip install 'merit-interests[train]'" in done.stderr, done.stderr[-2000:]


COMMANDS = f"""{HIDING}
import json
from merit.cli import main
for words in ("run shop.toml", "plan shop.toml", "bench shop.toml", "config schema", "serve ."):
    sys.argv = ["merit", *words.split()]
    try:
        main()
    except SystemExit as ended:
        print(ended.code)
"""


def test_a_command_names_the_extra_that_it_needs(tmp_path: Path) -> None:
    """One sentence, exit code 6, no traceback."""
    (tmp_path / "shop.toml").write_text('[source]\nkind = "tables"\ninteractions = "a"\nitems = "b"\n')
    done = subprocess.run([sys.executable, "-c", COMMANDS], cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout.split() == ["6"] * 5, done.stderr
    told = [line for line in done.stderr.splitlines() if line.strip()]
    assert [line.split("merit-interests[")[1].split("]")[0] for line in told] == [*["train"] * 4, "serve"], done.stderr


def test_any_other_missing_module_is_a_fault_of_ours() -> None:
    with pytest.raises(ModuleNotFoundError, match="no_such_module"), extras.needed_by("Something"):
        import no_such_module  # type: ignore[import-not-found]  # noqa: F401
    with (
        pytest.raises(MissingDependency, match=r"Something needs ray\. .*merit-interests\[ray\]"),
        extras.needed_by("Something"),
    ):
        raise ModuleNotFoundError(name="ray.util")


def test_without_its_extra_a_chart_is_told_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    table = pl.DataFrame({"label": ["a <b>", "c"], "users": [60, 70]})
    told = charts.bars(table, "label", "users", description="a <b>: 60; c: 70")
    assert told.startswith("<p") and "a &lt;b&gt;: 60; c: 70" in told and "merit-interests[charts]" in told
    with pytest.raises(MissingDependency, match=r"merit-interests\[charts\]"):
        charts.on_white(told)
