"""Users who are to be forgotten: hidden at once, gone from every byte, and nobody else touched; whatever is killed."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import merit
from merit.campaigns.audiences import build, export
from merit.core import artifacts, config, files
from merit.core.errors import ConfigError, DamagedArtifact, DataError, MissingArtifact, StorageError
from merit.data.prepare import PrepareRun, prepare
from merit.data.sources import Source
from merit.privacy import audit, hidden
from merit.privacy.erasure import erase, search
from merit.privacy.erasure.certificate import Certificate
from tests.privacy.erasure.worlds import contents, fill
from tests.processes import FORKED

Copy = Callable[[], Path]


@pytest.fixture(scope="module")
def filled(made: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fill(made, tmp_path_factory.mktemp("filled") / "work")


@pytest.fixture
def copy(filled: Path, tmp_path_factory: pytest.TempPathFactory) -> Copy:
    """The workspace anew, to be spoilt."""
    return lambda: Path(shutil.copytree(filled, tmp_path_factory.mktemp("copy") / "work"))


@pytest.fixture
def work(copy: Copy) -> Path:
    return copy()


def anywhere(folder: Path, users: list[str]) -> bool:
    """The slow way: unpacked texts of all tables, and the bytes of everything."""
    texts = [str(frame.rows()) for frame in contents(folder).values()]
    texts += [file.read_bytes().decode("latin-1") for file in folder.rglob("*") if file.is_file()]
    return any(re.search(rf"(?<!\w){user}(?!\w)", text) for user in users for text in texts)


# --- what is gone, and what is not -----------------------------------------------------------------------------------


def test_nothing_is_left_of_a_user(work: Path, model: Any) -> None:
    gone = model.users["user_id"][:2].to_list()
    assert anywhere(work, gone)
    told = erase.certificate_of(erase.erase([work], gone, "request 17"))
    assert not anywhere(work, gone)
    assert told.clean and told.requested == told.found == 2 and told.reason == "request 17"
    assert not list(work.rglob(".eras*.json")) and not list(work.rglob(".*.erased-*"))
    held = {each.path: each.kind for each in told.artifacts}
    assert {"run/examples", "run/model", "run/states", "assignment", "spring", "sent-csv"} <= set(held)
    for each in artifacts.family(work / "run") + [artifacts.load(work / name) for name in held if "/" not in name]:
        assert each.manifest.files  # every byte was checked against its manifest
    page = (work / "run/data-report/index.html").read_text()
    assert "Taken out when users were erased" in page and "History → gold" not in page


@given(st.data())
@settings(max_examples=3, deadline=None, suppress_health_check=list(HealthCheck))
def test_others_keep_every_row_and_every_bit_of_their_scores(copy: Copy, filled: Path, data: st.DataObject) -> None:
    work = copy()
    before, model = contents(work), merit.load(work / "run", verify=False)
    users = model.users["user_id"].to_list()
    gone = data.draw(st.sets(st.sampled_from(users), min_size=1, max_size=30))
    others = [user for user in users if user not in gone]
    text = model.labels.texts[0]
    ranked, scores = model.audience(text, len(users)), model.score(others, model.labels.texts[:3])
    lists = model.interests(others, k=7)
    erase.erase([work], sorted(gone))
    again = merit.load(work / "run")
    assert again.users.equals(model._users.table.filter(pl.col("user_id").is_in(others)))
    assert again.score(others, model.labels.texts[:3]).equals(scores)
    assert again.interests(others, k=7).equals(lists)
    left = ranked.filter(pl.col("user_id").is_in(others)).drop("rank")
    assert again.audience(text, len(others)).drop("rank").equals(left)
    for name, frame in contents(work).items():
        if "user_id" in frame.columns and "examples" not in name:
            assert frame.equals(before[name].filter(~pl.col("user_id").is_in(list(gone)))), name
    for split in ("validation", "test", "now"):
        stay, name = (
            ~before[f"run/corpus/{split}.parquet"]["user_id"].is_in(list(gone)),
            f"run/states/likely-{split}.parquet",
        )
        assert pl.read_parquet(work / name).equals(pl.read_parquet(filled / name).filter(stay))


def test_examples_are_those_of_tables_without_the_users(work: Path, made: Path, model: Any, tmp_path: Path) -> None:
    """The judge: prepare, on tables that never had them."""
    gone = model.users["user_id"].gather([3, 4, 99]).to_list()
    old = artifacts.load(made / "examples").manifest
    settings = config.build(PrepareRun, old.config)
    source: Source = settings.source
    place = tmp_path / "interactions.parquet"
    table = pl.read_parquet(source.interactions)  # type: ignore[union-attr]
    table.filter(~pl.col("user_id").is_in(gone)).write_parquet(place)
    mended = settings.model_copy(update={"source": source.model_copy(update={"interactions": place})})
    wanted = prepare(tmp_path / "examples", mended, old.seed or 0)
    erase.erase([work], gone)
    found = artifacts.load(work / "run/examples")
    assert {**contents(found.path)}.keys() == contents(wanted.path).keys()
    for name, frame in contents(wanted.path).items():
        assert frame.equals(contents(found.path)[name]), name
    assert found.manifest.summary == wanted.manifest.summary


def test_rows_without_ids_are_those_of_the_others(work: Path, model: Any) -> None:
    train = pl.read_parquet(work / "run/corpus/train.parquet")["user_id"]
    test = pl.read_parquet(work / "run/corpus/test.parquet")["user_id"]
    gone = [train[0], test[3]]
    said = pl.read_parquet(work / "run" / PREDICTED)
    erase.erase([work], gone)
    kept = said.filter(~test.is_in(gone))
    found = pl.read_parquet(work / "run" / PREDICTED)
    assert found.drop("example").equals(kept.drop("example")) and found["example"].to_list() == list(range(len(kept)))


PREDICTED = "ranking/predictions-0.parquet"


def test_a_quarantine_loses_the_rows_too(work: Path, tmp_path: Path) -> None:
    """Of a user who has no other row."""
    place = work / "run/examples"
    held = artifacts.load(place).manifest
    rows = [{"user_id": user, "item_id": "x", "timestamp": "?"} for user in ("nobody-1", " nobody-2.0 ", "77.0")]
    pl.DataFrame({"original": [json.dumps(row) for row in rows]}).write_parquet(place / "quarantine.parquet")
    file = place / "quarantine.parquet"
    record = artifacts.FileRecord(sha256=artifacts.hash_file(file), bytes=file.stat().st_size)
    changed = held.model_copy(
        update={"files": held.files | {file.name: record}, "summary": held.summary | {"set_aside": 3}}
    )
    named = changed.model_copy(update={"hash": artifacts.identity(changed)})
    (place / "manifest.json").write_text(named.model_dump_json())
    told = erase.certificate_of(erase.erase([work], ["77", "nobody-1"]))
    assert told.found == 2 and [each.rows for each in told.artifacts if each.rows] == [2]
    assert "nobody-2" in pl.read_parquet(file)["original"][0] and len(pl.read_parquet(file)) == 1
    assert artifacts.load(place).manifest.summary["set_aside"] == 1


def test_a_run_goes_on_as_if_nothing_had_changed(work: Path, made: Path, model: Any) -> None:
    """Children find their parents, and a folder proves what it was by its certificate."""
    before = {each.path.name: each.manifest for each in artifacts.family(work / "run", verify=False)}
    number = erase.erase([work], [model.users["user_id"][0]]).path.name
    told = erase.certificate_of(artifacts.load(work / "erasures" / number))
    for each in artifacts.family(work / "run"):
        old = before[each.path.name]
        assert each.manifest.hash == old.hash and each.manifest.parents == old.parents
        if each.manifest.erased:
            [record] = [one for one in told.artifacts if one.path == f"run/{each.path.name}"]
            had = {name: file.sha256 for name, file in each.manifest.files.items()}
            assert had == {name: file.sha256 for name, file in old.files.items()} | {
                file.name: file.after for file in record.files
            }
            was = had | {file.name: file.before for file in record.files}
            assert artifacts.identity(each.manifest, was) == each.manifest.hash
            assert (artifacts.identity(old, had) != old.hash) == bool(each.manifest.erased[0].rows)  # a page has none
            assert each.manifest.erased[0].number == number and "rows erased" in artifacts.describe(each)
        else:
            assert each.manifest == old
    kin = [each.path.name for each in artifacts.family(work / "run/model", verify=False)]
    assert {"model", "examples", "states", "stage-2", "predictions-2"} <= set(kin)


def test_the_certificate_tells_exports_and_models_and_nobody(work: Path, model: Any) -> None:
    members = pl.read_parquet(work / "spring/members.parquet")
    trained = pl.read_parquet(work / "run/corpus/train.parquet")["user_id"]
    treated = members.filter(pl.col("arm") == "treatment", pl.col("user_id").is_in(trained.implode()))["user_id"][0]
    made = erase.erase([work], [treated])
    told = erase.certificate_of(made)
    assert [(each.arm, each.form, each.users) for each in told.exports] == [
        ("treatment", "parquet", 1),
        ("treatment", "csv", 1),
        ("treatment", "jsonl", 1),
        ("all", "csv", 1),  # which is not there any more
    ]
    fitted = {each.path: (each.fitted, each.calibrated) for each in told.models}
    assert fitted == dict.fromkeys(["run/factors", "run/model", "run/propensity", "run/stage-2"], (1, 0))
    text = made.file("certificate.txt").read_text()
    assert "Exports that held them: 4" in text and "nothing was found" in text
    wanted = search.patterns([treated])
    assert not search.search([made.path], wanted).held and treated not in text
    entry = audit.read(work)[-1]
    assert entry.event == "erasure" and entry.details["number"] == told.number and entry.details["users"] == 1
    assert audit.verify(work).fault is None and treated not in (work / audit.FILE).read_text()


def test_one_of_an_arm_that_was_not_sent_is_in_no_export(work: Path) -> None:
    members = pl.read_parquet(work / "spring/members.parquet")
    control = members.filter(pl.col("arm") == "control")["user_id"][0]
    told = erase.certificate_of(erase.erase([work], [control]))
    assert [(each.arm, each.users) for each in told.exports] == [("all", 1)]
    assert artifacts.load(work / "spring").manifest.summary["control"] == (members["arm"] == "control").sum() - 1


def test_a_copy_that_is_not_ours_is_found_and_told(work: Path, model: Any, cli_: Cli) -> None:
    user = model.users["user_id"][0]
    (work / "notes.csv").write_text(f"who\n{user}\n")
    code, out, _ = cli_(user, "--folder", work)
    assert code == 1 and "STILL FOUND in notes.csv" in out and user not in out
    assert not erase.certificate_of(artifacts.load(next((work / "erasures").iterdir()))).clean


# --- hidden at once --------------------------------------------------------------------------------------------------


def test_users_are_hidden_from_the_next_call_on(work: Path) -> None:
    model = merit.load(work / "run")
    gone, *others = model.users["user_id"].to_list()
    text = model.labels.texts[0]
    everyone = model.audience(text, len(others) + 1)
    spring = artifacts.load(work / "spring")
    with erase.begin([work], [gone]):
        for ask in (
            lambda: model.interests(gone),
            lambda: model.score([gone], [text]),
            lambda: model.score_pairs([gone], [text]),
            lambda: model.verticals(gone),
            lambda: model.explain(gone, text),
            lambda: model.audience(text, among=[gone]),
        ):
            with pytest.raises(DataError, match="unknown to this model"):
                ask()
        assert gone not in model.users["user_id"] and gone not in model.audience(text, len(others))["user_id"]
        with pytest.raises(DataError, match=f"There are {len(others)} users"):
            model.audience(text, len(others) + 1)
        assert gone not in pl.concat(model.all_interests(k=1))["user_id"]
        left = everyone.filter(pl.col("user_id") != gone).drop("rank")
        assert model.audience(text, len(others)).drop("rank").equals(left)
        asked = export.load_summary(spring).request
        assert gone not in build.choose(model, asked).members["user_id"]
        sent = export.export(spring, model, "parquet", work / "again", "all")
        assert gone not in pl.read_parquet(sent.file("audience.parquet"))["user_id"]
        assert gone not in merit.load(work / "run").users["user_id"]  # whoever opens it now
    erase.finish([work])
    with pytest.raises(DataError, match="Open it again"):  # the list is gone, and still nothing is told
        model.interests(gone)
    with pytest.raises(DataError, match="unknown to this model"):
        merit.load(work / "run").interests(gone)


def test_a_seed_that_is_hidden_counts_no_more(work: Path, tmp_path: Path) -> None:
    model = merit.load(work / "run")
    users = model.users["user_id"].to_list()
    pl.DataFrame({"user_id": users[:110]}).write_csv(tmp_path / "seeds.csv")
    seeds = {"table": str(tmp_path / "seeds.csv"), "about": "buyers of our tents", "with_seeds": True}
    values: dict[str, Any] = {"name": "a", "lookalike": seeds}
    asked = config.build(build.AudienceRequest, values | {"size": {"by": "count", "users": 120}})
    assert build.choose(model, asked).figures.seeds == 110
    with erase.begin([work], users[:1]):
        found = build.choose(model, asked)
        assert found.figures.seeds == 109 and users[0] not in found.members["user_id"]


# --- whatever is killed ----------------------------------------------------------------------------------------------


def killed(place: Path, user: str, name: str, times: int, when: str) -> None:
    """In a process of its own: an erasure that ends at one of the calls of a function."""
    module = erase if name.startswith("erase.") else getattr(erase, name.split(".", maxsplit=1)[0])
    real, left = getattr(module, name.split(".")[1]), [times]

    def deadly(*args: Any, **kwargs: Any) -> Any:
        left[0] -= 1
        if not left[0] and when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        made = real(*args, **kwargs)
        if not left[0]:
            os.kill(os.getpid(), signal.SIGKILL)
        return made

    setattr(module, name.split(".")[1], deadly)
    erase.erase([place], [user])


MOMENTS = [
    ("hidden.hide", 1, "after"),
    ("erase.write_draft", 4, "after"),
    ("rewrite.exchange", 1, "after"),
    ("rewrite.exchange", 5, "before"),
    ("erase._write", 1, "before"),
    ("hidden.unhide", 1, "after"),
]


@pytest.fixture(scope="module")
def smooth(filled: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path, Certificate]:
    """A user, and the workspace from which nothing kept us from erasing them."""
    work = Path(shutil.copytree(filled, tmp_path_factory.mktemp("smooth") / "work"))
    user = pl.read_parquet(work / "run/corpus/train.parquet")["user_id"][5]
    return user, work, erase.certificate_of(erase.erase([work], [user]))


@pytest.mark.parametrize(("name", "times", "when"), MOMENTS)
def test_a_kill_at_any_moment_is_gone_on_from(
    work: Path, smooth: tuple[str, Path, Certificate], name: str, times: int, when: str
) -> None:
    user, untroubled, want = smooth
    child = FORKED.Process(target=killed, args=(work, user, name, times, when))
    child.start()
    child.join()
    assert child.exitcode == -signal.SIGKILL
    for each in artifacts.family(work / "run"):  # each is the old one or the new one, to the byte
        assert each.manifest.hash
    assert user not in merit.load(work / "run").users["user_id"]
    told = erase.certificate_of(erase.erase([work], [user]))
    assert told.clean and not anywhere(work, [user]) and not list(work.rglob(".*.erased-*"))
    assert not list(work.rglob(".eras*.json"))
    assert sorted(told.artifacts, key=str) == sorted(want.artifacts, key=str)
    assert told.models == want.models and told.exports == want.exports
    assert [entry.event for entry in audit.read(work)].count("erasure") == 1
    for one, two in zip(artifacts.family(work / "run"), artifacts.family(untroubled / "run"), strict=True):
        assert one.manifest.files == two.manifest.files and one.manifest.summary == two.manifest.summary


def test_what_a_killed_stage_left_goes_and_what_lives_is_waited_for(work: Path, model: Any) -> None:
    user = model.users["user_id"][0]
    dead = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, text=True)
    stale = [work / f"run/.states.tmp-{dead.stdout.strip()}", work / "run/.mined-1.parts-abc", work / ".git"]
    alive = work / f"run/.examples.tmp-{os.getpid()}"
    for place in (*stale, alive):
        place.mkdir()
    with pytest.raises(StorageError, match="hidden already"):
        erase.erase([work], [user])
    assert user not in merit.load(work / "run").users["user_id"]
    alive.rmdir()
    assert erase.certificate_of(erase.erase([work], [user])).clean
    assert [place.exists() for place in stale] == [False, False, True]


# --- bad words -------------------------------------------------------------------------------------------------------


def test_two_at_once_are_refused(work: Path, model: Any) -> None:
    one, two = model.users["user_id"][:2].to_list()
    with erase.begin([work], [one]):
        with pytest.raises(StorageError, match="Another erasure is at work"), erase.begin([work], [two]):
            pass
        with pytest.raises(StorageError, match="Another erasure is at work"):
            erase.finish([work])
    with pytest.raises(StorageError, match=f"Finish it first: `merit erase --folder {work}`"):  # from elsewhere
        erase.erase([work / "run"], [two])
    assert two in merit.load(work / "run").users["user_id"]
    assert erase.certificate_of(erase.erase([work], [two])).found == 1  # the other one first
    assert len(list((work / "erasures").iterdir())) == 2 and not anywhere(work, [one, two])


Cli = Callable[..., tuple[int, str, str]]


@pytest.fixture
def cli_(command: Cli) -> Cli:
    return partial(command, "-q", "erase")


def test_from_the_command_line(cli_: Cli, work: Path, model: Any, tmp_path: Path) -> None:
    one, two, three = model.users["user_id"][:3].to_list()
    before = contents(work)
    code, out, _ = cli_(one, "--folder", work, "--dry-run")
    assert code == 0 and "│ model" in out
    assert all(frame.equals(before[name]) for name, frame in contents(work).items())
    assert not list(work.rglob(".eras*"))
    (tmp_path / "ids.txt").write_text(f"{two}\n{three}\n")
    code, out, _ = cli_(one, "--file", tmp_path / "ids.txt", "--folder", work, "--reason", "request 17")
    assert code == 0 and "3 users of 3 requested were found and erased" in out and "nothing was found" in out
    assert one not in out and not anywhere(work, [one, two, three])


def test_unknown_users_are_said_to_be_unknown(cli_: Cli, work: Path, model: Any) -> None:
    before = {path: path.stat().st_mtime_ns for path in work.rglob("*") if path.is_file()}
    code, _, err = cli_("nobody-at-all", "--folder", work)
    assert code == DataError.exit_code and "This user is nowhere in" in err and "Nothing was erased" in err
    after = {path: path.stat().st_mtime_ns for path in work.rglob("*") if path.is_file()}
    assert {path for path in after if after[path] != before.get(path)} == {work / erase.LOCK}
    told = erase.certificate_of(erase.erase([work], ["nobody-at-all", model.users["user_id"][0]]))
    assert (told.requested, told.found) == (2, 1)


def test_bad_words_are_one_message(cli_: Cli, work: Path, tmp_path: Path) -> None:
    for words, code, told in (
        (("u1",), 2, "Name the folders with --folder"),
        (("u1", "--folder", tmp_path / "nowhere"), MissingArtifact.exit_code, "There is no folder"),
        (("--folder", work), 2, "No users are named"),
        (("", "--folder", work), 2, "Name the users"),
        (("u000001", "--folder", work, "--reason", "of u000001"), 2, "The reason names a user"),
        (("--file", tmp_path / "none.txt", "--folder", work), 2, "cannot be read"),
    ):
        assert cli_(*words)[0] == code and told in cli_(*words)[2]
    (tmp_path / "empty").mkdir()
    assert "There is nothing of merit" in cli_("u1", "--folder", tmp_path / "empty")[2]
    assert not list(work.rglob(".eras*.json"))


def test_what_is_not_known_or_damaged_is_not_passed_over(work: Path, model: Any) -> None:
    user = model.users["user_id"][0]
    members = work / "spring/members.parquet"
    whole = members.read_bytes()
    members.write_bytes(whole[:-1] + b"x")
    with pytest.raises((DamagedArtifact, Exception)):
        erase.erase([work], [user])
    assert erase.read_journal(work) is not None and (work / hidden.FILE).exists()
    members.write_bytes(whole)
    with artifacts.writing(work / "strange", "of the future") as draft:
        (draft.path / "users.bin").write_bytes(b"0")
    with pytest.raises(DataError, match="of the kind 'of the future'"):
        erase.erase([work], [user])
    shutil.rmtree(work / "strange")
    with artifacts.writing(work / "strange", "audience") as draft:
        pl.read_parquet(members).write_parquet(draft.path / "members.parquet")
        (draft.path / "more.parquet").write_bytes(b"0")
        draft.summary |= artifacts.load(work / "spring").manifest.summary
    with pytest.raises(DataError, match=r"more\.parquet is a file that `merit erase` does not know"):
        erase.erase([work], [user])
    shutil.rmtree(work / "strange")
    assert erase.certificate_of(erase.erase([work], [user])).clean


def test_an_erasure_that_would_leave_nobody_is_refused_and_blocks_no_other(work: Path, model: Any) -> None:
    users = model.users["user_id"].to_list()
    with pytest.raises(DataError, match="No user would be left"):
        erase.erase([work], users)
    assert not list(work.rglob(".eras*.json")) and users[0] in merit.load(work / "run").users["user_id"]
    assert erase.certificate_of(erase.erase([work], users[:1])).clean


def test_a_failed_erasure_is_taken_back_or_finished(work: Path, model: Any, cli_: Cli) -> None:
    one, two = model.users["user_id"][:2].to_list()
    with artifacts.writing(work / "strange", "of the future"):
        pass
    assert "of the kind 'of the future'" in cli_(one, "--folder", work)[2]
    assert one not in merit.load(work / "run").users["user_id"]
    code, _, err = cli_(two, "--folder", work)
    assert code != 0 and "begun here and cannot be finished" in err and "--take-back --folder" in err
    assert "as a whole" in cli_(one, "--take-back", "--folder", work)[2]
    assert cli_("--take-back", "--folder", work)[0] == 0
    assert not list(work.rglob(".eras*.json")) and one in merit.load(work / "run").users["user_id"]
    assert audit.read(work)[-1].event == "erasure taken back" and audit.verify(work).fault is None
    assert "nothing to take back" in cli_("--take-back", "--folder", work)[2]
    shutil.rmtree(work / "strange")
    with pytest.MonkeyPatch.context() as patched, pytest.raises(DataError, match="on purpose"):
        patched.setattr(erase.search, "search", lambda *_: (_ for _ in ()).throw(DataError("on purpose")))
        erase.erase([work], [two])
    assert "cannot be brought back" in cli_("--take-back", "--folder", work)[2]
    assert cli_("--folder", work)[0] == 0 and not anywhere(work, [two])


def test_lists_without_their_journal_are_no_dead_end(work: Path, model: Any) -> None:
    one, two = model.users["user_id"][:2].to_list()
    with erase.begin([work], [one]):
        (work / erase.JOURNAL).unlink()
    with pytest.raises(StorageError, match=r"whose journal is gone\. Give it again, with all 1 users"):
        erase.erase([work], [two])
    assert erase.certificate_of(erase.erase([work], [one, two])).found == 2


def test_what_cannot_be_hidden_leaves_nothing(work: Path, model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    user, write = model.users["user_id"][0], files.write

    def full(path: Path, *rest: Any) -> None:
        if path.name == hidden.FILE and path.parent.name == "run":
            raise StorageError(f"{path}: the disk is full.")
        write(path, *rest)

    monkeypatch.setattr(files, "write", full)
    with pytest.raises(StorageError, match="disk is full"):
        erase.erase([work], [user])
    assert not list(work.rglob(".eras*.json")) and user in merit.load(work / "run").users["user_id"]


@pytest.mark.parametrize("linked", ["run", "run/corpus/train.parquet"])
def test_links_that_lead_out_are_refused_until_they_are_named(
    work: Path, model: Any, tmp_path: Path, linked: str
) -> None:
    user, outside = model.users["user_id"][0], tmp_path / "outside" / Path(linked).name
    outside.parent.mkdir()
    (work / linked).rename(outside)
    (work / linked).symlink_to(outside)
    (work / "spring-link").symlink_to(work / "spring")  # leads nowhere else
    for act in (erase.plan, erase.erase):
        with pytest.raises(ConfigError, match=f"{linked} is a link to .*Name it too, with --folder {tmp_path}"):
            act([work], [user])
    assert not list(work.rglob(".eras*.json"))
    if linked == "run":
        assert erase.certificate_of(erase.erase([work, outside], [user])).clean
        assert not anywhere(outside, [user]) and not anywhere(work, [user])


def test_what_was_not_searched_is_no_clean_certificate(work: Path, model: Any, cli_: Cli) -> None:
    (work / "copy.csv.zst").write_bytes(b"\x28\xb5\x2f\xfd and more")
    code, out, _ = cli_(model.users["user_id"][0], "--folder", work)
    assert code == 1 and "nothing was found" in out and "NOT SEARCHED" in out and "copy.csv.zst (zstandard)" in out


def test_no_reason_is_logged_that_could_name_somebody() -> None:
    with pytest.raises(ConfigError, match="Write it without"), erase.begin([Path()], ["u1"], "u1 asked us"):
        pass
