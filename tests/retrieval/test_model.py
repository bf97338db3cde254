"""One small run, asked in every way a person could, and in some they should not."""

import shutil
import sys
from pathlib import Path
from subprocess import run as call

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

import merit
from merit.cli import app
from merit.core import artifacts, config
from merit.core.errors import DamagedArtifact, DataError, MissingArtifact, PolicyError
from merit.core.pipeline import run
from merit.core.settings import RunConfig
from merit.labels.build import change_labels
from merit.labels.names import normalise
from tests.small_run import SMALL, shop


@pytest.fixture(scope="session")
def made(made, tmp_path_factory):
    """A copy, as whoever names users leaves a line in the audit log of the run."""
    return shutil.copytree(made, tmp_path_factory.mktemp("named") / "run")


def test_both_directions_agree_with_the_score_of_the_pair(model):
    users = model.users["user_id"].head(5)
    lists = model.interests(users, k=4)
    assert lists["user_id"].to_list() == [user for user in users for _ in range(4)]
    for row in lists.iter_rows(named=True):
        pair = model.score([row["user_id"]], [row["interest"]])["probability"][0]
        assert pair == row["probability"]
    label = lists["interest"][0]
    everyone = model.audience(label, n=len(model.users))
    assert everyone["rank"].to_list() == list(range(1, len(model.users) + 1))
    assert (everyone["probability"].diff().drop_nulls() <= 0).all()
    first = everyone.row(0, named=True)
    assert model.score(first["user_id"], label)["probability"][0] == first["probability"]


def test_lists_are_the_best_of_all_labels(model):
    """The slow twin scores every label and sorts."""
    user = model.users["user_id"][0]
    live = model.labels.table.filter(pl.col("status") == "live")["text"].to_list()
    every = model.score([user], live).sort("probability", descending=True, maintain_order=True)
    best = model.interests(user, k=6)
    np.testing.assert_array_equal(best["probability"], every["probability"].head(6))


def test_a_search_in_all_regions_is_exact_and_in_few_it_says_what_it_lost(model):
    clusters = model.labels.table["cluster"].n_unique()
    whole = pl.concat(model.all_interests(k=5, regions=clusters))
    assert whole.equals(model.interests(model.users["user_id"], k=5))
    assert model.shortlist_recall(5, clusters) == 1
    k = model.live - 5  # what is had or likely is found in any case, and that is most of so small a space
    whole, few = (pl.concat(model.all_interests(k=k, regions=regions)) for regions in (clusters, 1))
    both = few.join(whole, on=["user_id", "interest"], how="semi")
    assert model.shortlist_recall(k, 1, users=len(model.users)) == pytest.approx(len(both) / len(whole))
    assert len(both) < len(whole)


def test_a_spread_list_has_no_region_twice(model):
    users = model.users["user_id"].head(20)
    cluster = dict(model.labels.table.select("text", "cluster").rows())
    plain, spread = (
        model.interests(users, k=5, diverse_regions=how)
        .group_by("user_id")
        .agg(pl.col("interest").replace_strict(cluster).n_unique())["interest"]
        for how in (False, True)
    )
    assert (spread == 5).all() and plain.mean() < 4


@pytest.mark.parametrize("kind", ["list", "numpy", "polars", "pandas"])
def test_users_may_come_as_any_column(model, kind):
    pandas = pytest.importorskip("pandas")
    ids = model.users["user_id"].head(3).to_list()
    given = {"list": ids, "numpy": np.array(ids), "polars": pl.Series(ids), "pandas": pandas.Series(ids)}[kind]
    assert model.interests(given, k=1)["user_id"].to_list() == ids


def test_a_phrase_is_scored_and_says_how_far_it_is(model, caplog):
    near, far = model.labels.texts[0] + " sets", "qqq zzz www"
    assert not model.interest(near).far
    assert model.interest(near).nearest == model.labels.texts[0]
    assert model.interest(far).far
    assert len(model.audience(far, n=103)) == 103


def test_an_audience_among_some_is_a_part_of_the_whole(model):
    some = model.users["user_id"].head(130)
    label = model.labels.texts[1]
    ranked = model.audience(label, n=len(model.users))["user_id"].to_list()
    part = model.audience(label, n=100, among=some)["user_id"].to_list()
    assert part == [user for user in ranked if user in set(some)][:100]


def test_audiences_at_once_are_those_of_each_label_among_the_same_users(model):
    users, labels = model.users["user_id"].sample(130, seed=1), np.flatnonzero(model.labels.live_mask())[::-3]
    for label, found in zip(labels, model.audiences(labels, users, n=100), strict=True):
        alone = model.audience(model.labels.texts[label], n=100, among=users)
        assert model.probabilities(*found).equals(alone.drop("rank"))


def test_the_number_of_threads_changes_no_answer(made, model):
    one = merit.load(made, threads=1)
    assert one.hashes == model.hashes == (model.artifact.manifest.hash, artifacts.load(made / "labels").manifest.hash)
    assert one.audience(one.labels.texts[0]).equals(model.audience(model.labels.texts[0]))


def test_the_effect_of_an_item_is_what_is_lost_without_it(model):
    user = model.users["user_id"][0]
    label = model.interests(user, k=1)["interest"][0]
    table = model.explain(user, label, k=1_000)
    assert len(table) == model.users["items"][0].n_unique()
    assert (table["effect"].diff().drop_nulls() <= 0).all() and (table["probability"].diff().drop_nulls() >= 0).all()
    assert table["effect"][0] > 0.1 and label in table["title"][0]
    whole = model.score(user, label)["probability"][0]
    clear = table.filter(pl.col("effect").abs() > 0.02)
    assert ((clear["probability"] < whole) == (clear["effect"] > 0)).all()


def test_verticals_add_up_the_probabilities_of_their_labels(model):
    user = model.users["user_id"][0]
    live = model.labels.table.filter(pl.col("status") == "live")["text"].to_list()
    total = model.score([user], live)["probability"].sum()
    assert abs(model.verticals(user)["expected"].sum() - total) < 1e-4


@pytest.mark.parametrize("label", [0, 7, "what nobody sells"])
def test_everybodys_probability_is_that_of_the_pair(model, label):
    text = label if isinstance(label, str) else model.labels.texts[label]
    pairs = model.score(model.users["user_id"], text)["probability"].to_numpy()
    np.testing.assert_array_equal(model.audience_scores(text, exact=True), pairs)
    np.testing.assert_allclose(model.audience_scores(text), pairs, rtol=1e-4)


def test_names_of_labels_are_found_by_their_keys(model):
    texts = model.labels.texts
    asked = [texts[3], f"  {texts[5].upper()}!", "what nobody sells", "", "🙂", texts[3]]
    ids = dict(model.labels.aliases.select("key", "id").rows())
    assert model.labels.find(asked).tolist() == [ids.get(normalise(text), -1) for text in asked]
    assert model.are_labels(texts[:2]) and model.are_labels([]) and not model.are_labels(asked)


def test_users_are_known_by_their_id(model):
    assert model.has_user(model.users["user_id"][-1]) and not model.has_user("nobody")
    with pytest.raises(DataError, match="2 users are unknown to this model, such as 'nobody'"):
        model.interests([model.users["user_id"][0], "nobody", "no one"])


@pytest.mark.parametrize("users", [40, 110])
def test_what_over_indexes_is_counted(model, users):
    told = model.over_indexed(model.users["user_id"].head(users), k=3)
    assert len(told)
    for row in told.iter_rows(named=True):
        number = int(model.labels.find([row["interest"]])[0])
        had = model.users.with_columns(had=pl.col("history").list.contains(number))
        assert abs(had.head(users)["had"].mean() - row["share"]) < 1e-9
        assert abs(had["had"].mean() - row["base"]) < 1e-9


def test_rare_labels_do_not_crowd_out_what_many_had(model):
    users = model.users["user_id"].head(60)
    told = model.over_indexed(users, k=3, at_least=15)
    assert len(told) == 3 and (told["share"] * 60 > 14.9).all()
    everything = model.over_indexed(users, k=len(model.labels))
    assert told["interest"].to_list() == everything.filter(pl.col("share") * 60 > 14.9)["interest"].to_list()[:3]


# --- a vocabulary that changes ---------------------------------------------------------------------------------------


def test_new_labels_are_scored_at_once_and_untouched_ones_to_the_same_bit(made, model, tmp_path):
    old = artifacts.load(made / "labels", "labels")
    texts = model.labels.texts
    added = change_labels(old, tmp_path / "a", "add", ["left-handed garden gnomes"], reason="new", cache=tmp_path / "c")
    retired = change_labels(added, tmp_path / "b", "retire", [texts[3]], reason="gone", cache=tmp_path / "c")
    newer = merit.load(made, labels=tmp_path / "b")
    users = model.users["user_id"].head(4)
    untouched = [text for text in texts[:10] if text != texts[3]]
    assert newer.score(users, untouched).equals(model.score(users, untouched))
    assert len(newer.audience("left-handed garden gnomes", n=105)) == 105
    assert retired.manifest.summary["version"] == 3
    with pytest.raises(DataError, match="retired"):
        newer.audience(texts[3])
    assert texts[3] not in newer.interests(users, k=40)["interest"].to_list()


def product(model):
    """A product that some have bought and not all, the words of its title that say most of it, and who bought it."""
    items = pl.read_parquet(model.artifact.file("items.parquet"))
    bought = model.users.select("user_id", "items").explode("items").unique()
    often = bought.group_by("items").len().filter(pl.col("len").is_between(5, 60)).sort("items")
    title = items.filter(pl.col("item") == often["items"][0])["title"][0]
    return title, set(bought.filter(pl.col("items") == often["items"][0])["user_id"])


def test_who_bought_what_a_phrase_names_comes_first(model):
    """The phrase is a product's title: having bought it counts as having had the interest."""
    title, buyers = product(model)
    ranked = model.audience(title, n=len(model.users))["user_id"].to_list()
    places = [ranked.index(user) for user in buyers]
    assert np.mean(places) < len(ranked) / 3
    told = model.explain(min(buyers), title, k=3)
    assert title in told["title"].to_list() and told["effect"][0] > 0


def test_a_label_added_later_scores_as_its_text_did_before(made, model, tmp_path):
    """Whether a phrase is typed or added to the label space makes no difference, in both directions."""
    title, _ = product(model)
    old = artifacts.load(made / "labels", "labels")
    change_labels(old, tmp_path / "a", "add", [title], reason="new", cache=tmp_path / "c")
    newer, users = merit.load(made, labels=tmp_path / "a"), model.users["user_id"]
    assert newer.score(users, [title])["probability"].equals(model.score(users, [title])["probability"])
    assert newer.audience(title).equals(model.audience(title))
    likely = newer.audience(title)["user_id"][0]
    everything = newer.interests(likely, k=int(newer.labels.live_mask().sum()))
    found = everything.filter(pl.col("interest") == newer.labels.texts[-1])["probability"]
    assert found[0] == model.audience(title)["probability"][0]


def test_a_label_space_that_lost_labels_is_refused(made, tmp_path):
    other = tmp_path / "other"
    source = shop(tmp_path, 60, 9)
    values = SMALL | {"source": source, "out": str(other), "labels": {"encoder": "hashed", "min_count": 60}}
    run(config.build(RunConfig, values), until="labels")
    with pytest.raises(DataError, match="later version"):
        merit.load(made, labels=other / "labels")


# --- bad input -------------------------------------------------------------------------------------------------------


def test_what_cannot_be_answered_is_told(model):
    user, label = model.users["user_id"][0], model.labels.texts[0]
    for ask, word in [
        (lambda: model.interests("nobody"), "unknown"),
        (lambda: model.interests([]), "empty"),
        (lambda: model.interests(user, k=0), "1 or more"),
        (lambda: model.interests(user, k=10_000), "no more"),
        (lambda: model.audience(label, n=0), "1 or more"),
        (lambda: model.audience(label, n=10**7), "no more"),
        (lambda: model.audience("  "), "empty"),
        (lambda: model.audience("x" * 5_000), "200 characters"),
        (lambda: model.score([user], []), "empty"),
        (lambda: model.score_pairs([user], [label, label]), "pairs"),
        (lambda: model.interests(7), "list of texts"),
    ]:
        with pytest.raises(DataError, match=word):
            ask()


@pytest.mark.parametrize("phrase", ["handguns", "red wine", "a gun for beginners"])
def test_blocked_interests_and_their_paraphrases_are_refused(model, phrase):
    with pytest.raises(PolicyError, match="policy"):
        model.audience(phrase)


def test_nothing_is_served_from_a_damaged_folder(made, tmp_path):
    place = tmp_path / "model"
    shutil.copytree(made / "model", place)
    file = place / "users" / "projections.npy"
    content = file.read_bytes()
    file.write_bytes(content[:-4])
    with pytest.raises(DamagedArtifact, match=r"projections\.npy"):
        merit.load(place)
    file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(DamagedArtifact, match=r"projections\.npy"):
        merit.load(place)


def test_a_folder_that_is_no_model_is_named(tmp_path):
    with pytest.raises(MissingArtifact, match="merit run"):
        merit.load(tmp_path / "nothing")


def test_a_model_answers_for_known_labels_without_torch(made):
    code = (
        f"import sys, merit; m = merit.load({str(made)!r}); m.audience(m.labels.texts[0]); "
        "m.interests(m.users['user_id'][0]); print([name for name in ('torch', 'sklearn') if name in sys.modules])"
    )
    done = call([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_moved_folder_still_answers(made, model, tmp_path):
    shutil.copytree(made / "model", tmp_path / "elsewhere")
    moved = merit.load(tmp_path / "elsewhere")
    user = model.users["user_id"][0]
    assert moved.interests(user).equals(model.interests(user))
    assert len(moved.explain(user, model.labels.texts[0], k=2)) == 2


def test_the_card_tells_data_figures_and_limits(model):
    card = model.card()
    for word in ("Interactions from", "Label space version 1", "calibration error", "## Not for"):
        assert word in card


# --- the command line ------------------------------------------------------------------------------------------------


def test_the_same_on_the_command_line(made, model, tmp_path):
    user, label = model.users["user_id"][0], model.labels.texts[0]
    pairs = tmp_path / "pairs.jsonl"
    pl.DataFrame({"user_id": [user], "interest": [label]}).write_ndjson(pairs)
    told = CliRunner().invoke(app, ["model", "score", str(made), str(pairs)])
    assert told.exit_code == 0
    assert pl.read_ndjson(told.stdout.encode())["probability"][0] == model.score(user, label)["probability"][0]
    asked = ["model", "interests", str(made), "--file", str(pairs), "-k", "2", "--jsonl"]
    assert len(pl.read_ndjson(CliRunner().invoke(app, asked).stdout.encode())) == 2
    assert label in CliRunner().invoke(app, ["model", "audience", str(made), label]).stdout
    assert "Model card" in CliRunner().invoke(app, ["model", "card", str(made)]).stdout
    assert CliRunner().invoke(app, ["model", "explain", str(made), user, label, "-k", "1"]).exit_code == 0


def told_labels(made, *words):
    """What `merit model labels` prints as lines."""
    told = CliRunner().invoke(app, ["model", "labels", str(made), *words, "--jsonl"])
    assert told.exit_code == 0, told.exception
    return pl.read_ndjson(told.stdout.encode()) if told.stdout else None


def test_the_labels_it_knows_are_listed_with_their_users(made, model):
    """The slow twin asks every user."""
    rows = told_labels(made, "-k", "1000")
    live = model.labels.table.filter(pl.col("status") == "live")
    assert sorted(rows["interest"]) == sorted(live["text"])
    assert rows["events"].to_list() == sorted(live["count"], reverse=True)
    for row in rows.head(5).iter_rows(named=True):
        number = int(model.labels.find([row["interest"]])[0])
        assert row["users"] == sum(number in history for history in model.users["history"]) > 0
        assert row["vertical"] == model.labels.table["vertical"][number] and row["status"] == "live"
    shown = CliRunner().invoke(app, ["model", "labels", str(made), "-k", "3"]).stdout
    assert f"3 of {len(live)} live interests" in shown and rows["interest"][0].split()[0] in shown


def test_labels_are_found_by_how_their_words_begin(made, model):
    word = model.labels.texts[0].split()[-1]
    found = told_labels(made, "--search", word[:4].upper(), "-k", "1000")["interest"].to_list()
    live = model.labels.table.filter(pl.col("status") == "live")["text"]
    assert sorted(found) == sorted(text for text in live if f" {word[:4].lower()}" in f" {text.lower()}")


def test_a_search_without_a_result_says_what_can_be_asked(made, command):
    code, out, err = command("model", "labels", made, "--search", "zeppelin's")
    assert (code, out) == (0, "") and "zeppelin's" in err and "merit model audience" in err
    code, out, err = command("model", "labels", made, "--status", "retired")
    assert (code, out) == (0, "") and "no retired interests" in err
    assert told_labels(made, "--search", "zeppelin") is None


def test_a_later_space_lists_what_it_added_and_retired_and_never_what_it_blocked(made, model, tmp_path, command):
    gone, blocked, old = *model.labels.texts[:2], artifacts.load(made / "labels", "labels")
    for folder, action, text in (("a", "add", "night hiking"), ("b", "retire", gone), ("c", "block", blocked)):
        old = change_labels(old, tmp_path / folder, action, [text], reason="a test", cache=tmp_path / "cache")
    words = ("--labels", str(tmp_path / "c"), "-k", "1000")
    assert told_labels(made, *words, "--search", "night hik")["interest"].to_list() == ["night hiking"]
    assert told_labels(made, *words, "--status", "retired")["interest"].to_list() == [gone]
    assert not {gone, blocked} & {*told_labels(made, *words)["interest"]}
    assert told_labels(made, *words, "--search", blocked) is None
    code, _, err = command("model", "labels", made, "--status", "blocked")
    assert code == 2 and "'retired'" in err


def test_brackets_in_what_is_asked_are_no_markup(made):
    told = CliRunner().invoke(app, ["model", "audience", str(made), "tea [/b] [red]"])
    assert told.exit_code == 0 and "tea [/b] [red]" in told.stdout


def test_a_table_without_the_column_is_named(made, tmp_path):
    table = tmp_path / "t.csv"
    table.write_text("who\n1\n", encoding="utf-8")
    told = CliRunner().invoke(app, ["model", "interests", str(made), "--file", str(table)])
    assert told.exit_code != 0
    assert isinstance(told.exception, DataError)
    assert "user_id" in str(told.exception)


def test_paths_of_a_run_are_accepted_as_text(made):
    assert merit.load(str(Path(made))).artifact.path.name == "model"
