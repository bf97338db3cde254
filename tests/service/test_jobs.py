"""Jobs: one at a time, each in a state that is true, whatever happened to the process."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from merit.campaigns.audiences import build as stage
from merit.campaigns.audiences.request import AudienceRequest
from merit.core import config, files
from merit.core.artifacts import Artifact
from merit.core.errors import ConfigError, DataError, MissingArtifact, StorageError
from merit.service.jobs import CANCELLED, INTERRUPTED, AudienceJob, AudienceJobs
from merit.service.problems import Refusal
from merit.service.service import opened
from tests.service.test_answers import finished

Open = Callable[..., AudienceJobs]


@pytest.fixture
def request_(wanted: dict[str, Any]) -> AudienceRequest:
    return config.build(AudienceRequest, wanted)


@pytest.fixture
def jobs(tmp_path: Path, model: Any) -> Iterator[Open]:
    """Jobs over one folder; a gate can hold the build back."""
    made: list[AudienceJobs] = []

    def start(gate: threading.Event | None = None, waiting: int = 9) -> AudienceJobs:
        def build(request: AudienceRequest, out: Path) -> Artifact:
            if gate:
                assert gate.wait(20)
            return stage.build(model, request, out)

        made.append(AudienceJobs(tmp_path / "jobs", build, str, waiting))
        return made[-1]

    yield start
    for each in made:
        each.close()


def test_a_job_waits_runs_and_is_done(jobs: Open, request_: AudienceRequest) -> None:
    gate = threading.Event()
    own = jobs(gate)
    first, second = own.submit("a", request_), own.submit("a", request_)
    assert first.state == "PENDING"
    _until(lambda: own.get(first.id, "a").state == "RUNNING")
    assert own.get(second.id, "a").state == "PENDING"
    with pytest.raises(DataError, match="RUNNING"):
        own.audience(first.id, "a")
    gate.set()
    _until(lambda: own.get(second.id, "a").state == "DONE")
    assert own.audience(first.id, "a").manifest.hash == own.audience(second.id, "a").manifest.hash


def test_a_job_that_fails_tells_why_and_leaves_nothing(jobs: Open, request_: AudienceRequest) -> None:
    own = jobs()
    job = own.submit(
        "a",
        request_.model_copy(
            update={
                "size": config.build(
                    AudienceRequest, {"name": "a", "interests": ["a"], "size": {"by": "count", "users": 99_999}}
                ).size
            }
        ),
    )
    _until(lambda: own.get(job.id, "a").state == "FAILED")
    assert "users are eligible" in (own.get(job.id, "a").reason or "")
    assert sorted(path.name for path in (own.folder / job.id).iterdir()) == ["job.json"]


def test_the_same_word_of_idempotency_is_the_same_job(jobs: Open, request_: AudienceRequest) -> None:
    own = jobs()
    one, two = own.submit("a", request_, "x"), own.submit("a", request_, "x")
    assert one.id == two.id and len(own.list("a")) == 1
    with pytest.raises(ConfigError, match="another request"):
        own.submit("a", request_.model_copy(update={"name": "other"}), "x")
    assert own.submit("b", request_, "x").id != one.id  # another caller's word is another's


def test_words_of_idempotency_outlive_the_process(jobs: Open, request_: AudienceRequest) -> None:
    first = jobs()
    job = first.submit("a", request_, "x")
    first.close()
    assert jobs().submit("a", request_, "x").id == job.id


def test_cancelled_jobs_end_in_no_audience(jobs: Open, request_: AudienceRequest) -> None:
    gate = threading.Event()
    own = jobs(gate)
    running, waiting = own.submit("a", request_), own.submit("a", request_)
    _until(lambda: own.get(running.id, "a").state == "RUNNING")
    for job in (running, waiting):
        assert own.cancel(job.id, "a").reason == CANCELLED
        assert own.cancel(job.id, "a").state == "FAILED"  # once more changes nothing
    gate.set()
    own.close()
    assert not list(own.folder.glob("*/audience"))
    with pytest.raises(DataError, match="FAILED"):
        own.audience(running.id, "a")


def test_a_done_job_cannot_be_cancelled(jobs: Open, request_: AudienceRequest) -> None:
    own = jobs()
    job = own.submit("a", request_)
    _until(lambda: own.get(job.id, "a").state == "DONE")
    with pytest.raises(DataError, match="nothing to cancel"):
        own.cancel(job.id, "a")


def test_a_key_may_have_so_many_jobs_waiting(jobs: Open, request_: AudienceRequest) -> None:
    gate = threading.Event()
    own = jobs(gate, waiting=2)
    own.submit("a", request_)
    own.submit("a", request_)
    with pytest.raises(Refusal, match="2 jobs of this key"):
        own.submit("a", request_)
    own.submit("b", request_)
    gate.set()


# --- after a kill ----------------------------------------------------------------------------------------------------


def left(jobs: Open, request_: AudienceRequest, **changes: Any) -> tuple[Path, AudienceJob]:
    """A folder as a process that was killed would leave it."""
    own = jobs()
    job = own.submit("a", request_)
    own.close()
    changed = own.get(job.id, None).model_copy(update=changes)
    files.write(own.folder / job.id / "job.json", changed.model_dump_json())
    return own.folder / job.id, changed


def test_what_was_waiting_is_run(jobs: Open, request_: AudienceRequest) -> None:
    folder, job = left(jobs, request_, state="PENDING", members=None)
    shutil.rmtree(folder / "audience")
    again = jobs()
    _until(lambda: again.get(job.id, "a").state == "DONE")
    assert again.audience(job.id, "a").manifest.summary["members"] == 110


def test_what_was_running_and_complete_is_done(jobs: Open, request_: AudienceRequest) -> None:
    _, job = left(jobs, request_, state="RUNNING", members=None, hash=None)
    again = jobs()
    assert again.get(job.id, "a").state == "DONE" and again.get(job.id, "a").members == 110


@pytest.mark.parametrize("harm", ["no manifest", "a torn file", "a draft"])
def test_what_was_running_and_torn_has_failed_and_is_gone(harm: str, jobs: Open, request_: AudienceRequest) -> None:
    folder, job = left(jobs, request_, state="RUNNING")
    if harm == "no manifest":
        (folder / "audience/manifest.json").unlink()
    elif harm == "a torn file":
        content = (folder / "audience/members.parquet").read_bytes()
        (folder / "audience/members.parquet").write_bytes(content[:-9])
    else:
        (folder / "audience").rename(folder / ".audience.tmp-999999")
    again = jobs()
    assert again.get(job.id, "a").state == "FAILED" and again.get(job.id, "a").reason == INTERRUPTED
    assert sorted(path.name for path in folder.iterdir()) == ["job.json"]
    with pytest.raises(DataError):
        again.audience(job.id, "a")


def test_a_done_audience_that_was_damaged_since_is_not_given_out(
    ask: Any, wanted: dict[str, Any], service: Any
) -> None:
    job = finished(ask(), ask().post("/v1/audience/jobs", json=wanted).json())
    file = service.state / "jobs" / job["id"] / "audience/members.parquet"
    file.write_bytes(file.read_bytes()[:-1] + b"x")
    answer = ask().get(f"/v1/audience/jobs/{job['id']}/export")
    assert answer.status_code == 409 and "damaged" in answer.json()["detail"] and str(service.state) not in answer.text


def test_a_job_file_that_cannot_be_read_stops_nothing(jobs: Open, request_: AudienceRequest, tmp_path: Path) -> None:
    (tmp_path / "jobs/broken").mkdir(parents=True)
    (tmp_path / "jobs/broken/job.json").write_text("{")
    own = jobs()
    assert own.list(None) == [] and own.submit("a", request_).state == "PENDING"


class FullDisk:
    """A disk with no space left from a state of a job on, until some is freed."""

    def __init__(self, state: str) -> None:
        self.full, self.write, self._state, self._begun = True, files.write, state, False

    def __call__(self, path: Path, content: str, *mode: int) -> None:
        self._begun |= f'"state": "{self._state}"' in content
        if self.full and self._begun:
            raise StorageError(f"{path}: the disk is full. Free some space.")
        self.write(path, content, *mode)


@pytest.mark.parametrize("state", ["RUNNING", "DONE"])
def test_a_state_that_cannot_be_stored_is_told_and_stored_later(
    state: str, jobs: Open, request_: AudienceRequest, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    disk, own = FullDisk(state), jobs()
    monkeypatch.setattr(files, "write", disk)
    job = own.submit("a", request_)
    ending = "FAILED" if state == "RUNNING" else "DONE"  # an audience that is complete is there
    _until(lambda: own.get(job.id, "a").state == ending)
    assert ending == "DONE" or "disk is full" in (own.get(job.id, "a").reason or "")
    assert "its state cannot be stored" in caplog.text
    place = own.folder / job.id / "job.json"
    assert f'"state": "{ending}"' not in place.read_text()
    disk.full = False
    assert own.list("a")[0].state == ending and f'"state": "{ending}"' in place.read_text()
    assert own.submit("a", request_).state == "PENDING"


def test_a_job_that_cannot_be_stored_is_not_begun(
    jobs: Open, request_: AudienceRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = jobs()
    monkeypatch.setattr(files, "write", FullDisk("PENDING"))
    with pytest.raises(StorageError, match="disk is full"):
        own.submit("a", request_)
    assert own.list(None) == [] and not list(own.folder.glob("*"))


def test_two_services_do_not_share_a_folder(made: Path, tmp_path: Path) -> None:
    first, second = opened(made, tmp_path, verify=False), opened(made, tmp_path, verify=False)
    with first, pytest.raises(StorageError, match="--state"), second:
        pass
    with opened(made, tmp_path, verify=False) as service:  # the lock went with its holder
        assert service.state == tmp_path


# --- over HTTP -------------------------------------------------------------------------------------------------------


def test_jobs_of_another_key_are_not_there(ask: Any, wanted: dict[str, Any]) -> None:
    mine, other = ask("audience", "export"), ask("read", "audience", "export")
    answer = mine.post("/v1/audience/jobs", json=wanted, headers={"Idempotency-Key": "one"})
    assert answer.status_code == 202
    place = answer.headers["location"]
    assert mine.post("/v1/audience/jobs", json=wanted, headers={"Idempotency-Key": "one"}).json()["id"] in place
    clash = mine.post("/v1/audience/jobs", json=wanted | {"name": "b"}, headers={"Idempotency-Key": "one"})
    assert clash.status_code == 422
    finished(mine, answer.json())
    for client, seen, sent in ((mine, 200, 200), (other, 404, 404), (ask("audience", "export", "admin"), 200, 403)):
        assert client.get(place).status_code == seen
        assert client.get(f"{place}/export").status_code == sent
    assert other.post(f"{place}/cancel").status_code == 404
    assert answer.json()["id"] not in other.get("/v1/audience/jobs").text
    assert "owner" not in answer.json() and "idempotency" not in answer.json()


def test_pages_of_jobs(ask: Any, wanted: dict[str, Any]) -> None:
    client = ask("audience", "erase")
    made = [client.post("/v1/audience/jobs", json=wanted | {"name": f"job {n}"}).json()["id"] for n in range(5)]
    seen, cursor = [], None
    while True:
        page = client.get("/v1/audience/jobs", params={"limit": 2, **({"cursor": cursor} if cursor else {})}).json()
        seen += [job["id"] for job in page["items"]]
        if (cursor := page["next"]) is None:
            break
    assert seen == made[::-1]
    for number in made:
        finished(client, client.get(f"/v1/audience/jobs/{number}").json())


def test_no_export_of_few_and_none_before_it_is_done(ask: Any, wanted: dict[str, Any], service: Any) -> None:
    asked = wanted | {"control": {"share": 0.1, "salt": "spring-2027"}, "size": {"by": "percentile", "percent": 100}}
    job = finished(ask(), ask().post("/v1/audience/jobs", json=asked).json())
    few = ask().get(f"/v1/audience/jobs/{job['id']}/export", params={"arm": "control"})
    assert few.status_code == 403 and "Fewer than 100" in few.json()["detail"]
    assert ask().get(f"/v1/audience/jobs/{job['id']}/export", params={"arm": "x"}).status_code == 422
    assert ask().get("/v1/audience/jobs/../../keys.json/export").status_code == 404
    assert not list((service.state / "exports").glob("*"))  # nothing is left of an export, refused or sent


def test_unknown_jobs(jobs: Open) -> None:
    with pytest.raises(MissingArtifact):
        jobs().get("x" * 500, None)


def _until(true: Callable[[], bool]) -> None:
    waited = threading.Event()
    for _ in range(400):
        if true():
            return
        waited.wait(0.05)
    raise AssertionError("it never came")
