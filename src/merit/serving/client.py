"""Ask a service with the words of `merit.Model`: frames in the same columns, and an error that names the remedy.

    service = Client("http://127.0.0.1:8000", key="merit_…")
    service.interests("1042", k=10)                       # rank, interest, probability, vertical
    service.preview({"interests": ["trail running"], ...}).members
    job = service.build({"interests": ["trail running"], ...})
    service.export(service.wait(job).id, Path("send.csv"))

The standard library is enough for it; no server package is needed.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from http.client import HTTPResponse
from pathlib import Path
from typing import Any, TypeVar
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlencode
from urllib.request import Request, urlopen

import polars as pl
from pydantic import BaseModel, ValidationError

from merit import files
from merit.campaign.analysis import Analysis
from merit.campaign.design import ExperimentDesign
from merit.campaign.export import Form
from merit.campaign.request import AudienceRequest
from merit.errors import DataError, MeritError
from merit.serving import shapes

T = TypeVar("T", bound=BaseModel)
Audience = AudienceRequest | Mapping[str, Any]
FINAL = ("DONE", "FAILED")


class ServiceError(MeritError):
    """What a service refused, with its problem."""

    def __init__(self, problem: shapes.Problem) -> None:
        super().__init__(f"{problem.detail} {problem.remedy} (request {problem.request_id})")
        self.problem = problem


class Client:
    def __init__(self, url: str, key: str, timeout: float = 60.0) -> None:
        if not url.startswith(("http://", "https://")):
            raise DataError(f"'{url}' is no address of a service. Write it as http://127.0.0.1:8000.")
        self.url, self._key, self.timeout = url.rstrip("/"), key, timeout

    def interests(self, user: str, k: int = 10, diverse_regions: bool = False) -> pl.DataFrame:
        """The k most likely interests of a user."""
        query = urlencode({"k": k, "diverse_regions": str(diverse_regions).lower()})
        return _frame(self._get(f"/v1/users/{quote(user, safe='')}/interests?{query}", shapes.InterestPage))

    def regions(self, user: str, k: int = 50) -> shapes.Regions:
        """How the k most likely interests of a user spread over regions of labels."""
        return self._get(f"/v1/users/{quote(user, safe='')}/regions?k={k}", shapes.Regions)

    def history(self, user: str, limit: int = 100) -> Iterator[shapes.HistoryRow]:
        """What a user did, the newest first, page after page."""
        cursor: str | None = None
        while True:
            query = {"limit": limit} | ({"cursor": cursor} if cursor else {})
            path = f"/v1/users/{quote(user, safe='')}/history?{urlencode(query)}"
            page = self._get(path, shapes.HistoryPage)
            yield from page.items
            if (cursor := page.next) is None:
                return

    def verticals(self, user: str) -> pl.DataFrame:
        """How many interests of each vertical a user is expected to have."""
        return _frame(self._get(f"/v1/users/{quote(user, safe='')}/verticals", shapes.Verticals))

    def score(self, users: Sequence[str], interests: Sequence[str]) -> pl.DataFrame:
        """The probability of every pair."""
        return _frame(self._post("/v1/score", {"users": list(users), "interests": list(interests)}, shapes.Scores))

    def score_pairs(self, users: Sequence[str], interests: Sequence[str]) -> pl.DataFrame:
        """The probability of the first user for the first interest, of the second for the second, and so on."""
        pairs = [{"user_id": user, "interest": text} for user, text in zip(users, interests, strict=True)]
        return _frame(self._post("/v1/score-pairs", {"pairs": pairs}, shapes.Scores))

    def interest(self, text: str) -> shapes.Meaning:
        """What a text means to the model."""
        return self._post("/v1/interest", {"text": text}, shapes.Meaning)

    def explain(self, user: str, interest: str, k: int = 10) -> pl.DataFrame:
        """Which events of a user carry the probability of an interest."""
        return _frame(self._post("/v1/explain", {"user_id": user, "interest": interest, "k": k}, shapes.Explanation))

    def key(self) -> shapes.KeyFacts:
        """The key in use, and what it may do."""
        return self._get("/v1/key", shapes.KeyFacts)

    def card(self) -> str:
        return self._get("/v1/model/card", shapes.Card).markdown

    def model(self) -> shapes.ModelFacts:
        return self._get("/v1/model", shapes.ModelFacts)

    def results(self) -> shapes.Results:
        return self._get("/v1/model/results", shapes.Results)

    def calibration(self) -> shapes.Calibration:
        return self._get("/v1/model/calibration", shapes.Calibration)

    def label_map(self) -> shapes.LabelMap:
        """The largest clusters of labels, with a place on a plane for each."""
        return self._get("/v1/label-map", shapes.LabelMap)

    def labels(
        self, q: str = "", status: str = "live", limit: int = 100, cluster: int | None = None
    ) -> Iterator[shapes.LabelRow]:
        """Labels that begin so or have such words, page after page."""
        cursor: str | None = None
        while True:
            query: dict[str, Any] = {"q": q, "status": status, "limit": limit, "cluster": cluster, "cursor": cursor}
            query = {name: value for name, value in query.items() if value is not None}
            page = self._get(f"/v1/labels?{urlencode(query)}", shapes.LabelPage)
            yield from page.items
            if (cursor := page.next) is None:
                return

    def preview(self, request: Audience) -> shapes.Preview:
        """Everything about an audience, and nothing written."""
        return self._post("/v1/audience/preview", _plain(request), shapes.Preview)

    def sample(self, request: Audience, k: int = 6) -> shapes.Sample:
        """Some of those who would be contacted."""
        return self._post(f"/v1/audience/sample?k={k}", _plain(request), shapes.Sample)

    def tables(self) -> shapes.Tables:
        """The tables that rules may name."""
        return self._get("/v1/tables", shapes.Tables)

    def build(self, request: Audience, idempotency: str | None = None) -> shapes.JobTold:
        """Start a job. Sent again with the same word of idempotency, it is still one job."""
        headers = {"Idempotency-Key": idempotency or secrets.token_hex(16)}
        return self._post("/v1/audience/jobs", _plain(request), shapes.JobTold, headers)

    def job(self, number: str) -> shapes.JobTold:
        return self._get(f"/v1/audience/jobs/{quote(number, safe='')}", shapes.JobTold)

    def jobs(self, limit: int = 100) -> list[shapes.JobTold]:
        """The newest ones."""
        return self._get(f"/v1/audience/jobs?limit={limit}", shapes.JobPage).items

    def cancel(self, number: str) -> shapes.JobTold:
        return self._post(f"/v1/audience/jobs/{quote(number, safe='')}/cancel", None, shapes.JobTold)

    def wait(self, job: shapes.JobTold, seconds: float = 600.0, every: float = 0.2) -> shapes.JobTold:
        """Until it is done. One that failed is an error with its reason."""
        end = time.monotonic() + seconds
        while job.state not in FINAL:
            if time.monotonic() > end:
                raise DataError(f"Job {job.id} is still {job.state} after {seconds:g} s. Ask for it later.")
            time.sleep(every)
            job = self.job(job.id)
        if job.state == "FAILED":
            raise DataError(f"Job {job.id} failed: {job.reason}")
        return job

    def export(self, number: str, out: Path, form: Form = "csv", arm: str = "treatment") -> Path:
        """The users of a finished job as a file, which is complete or not there."""
        query = urlencode({"form": form, "arm": arm})
        with self._open("GET", f"/v1/audience/jobs/{quote(number, safe='')}/export?{query}") as response:
            content, told = response.read(), response.headers["X-Content-SHA256"]
        if sha256(content).hexdigest() != told:
            raise DataError("The file did not arrive whole. Export it again.")
        files.write(out, content)
        return out

    def design(self, asked: ExperimentDesign | Mapping[str, Any]) -> shapes.DesignTold:
        """What a design needs and can see, and the file to keep."""
        return self._post("/v1/experiments/design", _plain(asked), shapes.DesignTold)

    def analyze(self, asked: shapes.AnalysisAsked | Mapping[str, Any]) -> Analysis:
        """An experiment from its design and its sufficient statistics."""
        return self._post("/v1/experiments/analyze", _plain(asked), Analysis)

    def erase(self, users: Sequence[str], reason: str = "", idempotency: str | None = None) -> shapes.ErasureTold:
        """Hide users at once and start to purge them. Sent again with the same word, it is still one erasure."""
        headers = {"Idempotency-Key": idempotency or secrets.token_hex(16)}
        return self._post("/v1/erasures", {"users": list(users), "reason": reason}, shapes.ErasureTold, headers)

    def erasure(self, number: str) -> shapes.ErasureTold:
        return self._get(f"/v1/erasures/{quote(number, safe='')}", shapes.ErasureTold)

    def reload(self) -> shapes.Reloaded:
        return self._post("/v1/admin/reload", None, shapes.Reloaded)

    def _get(self, path: str, shape: type[T]) -> T:
        with self._open("GET", path) as response:
            return shape.model_validate_json(response.read())

    def _post(self, path: str, body: Any, shape: type[T], headers: Mapping[str, str] | None = None) -> T:
        with self._open("POST", path, body, headers) as response:
            return shape.model_validate_json(response.read())

    def _open(self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None) -> HTTPResponse:
        sent = {"Authorization": f"Bearer {self._key}", **(headers or {})}
        data = None
        if body is not None:
            data, sent["Content-Type"] = json.dumps(body, allow_nan=False).encode(), "application/json"
        try:
            response: HTTPResponse = urlopen(  # the scheme was looked at when the client was made
                Request(self.url + path, data, sent, method=method), timeout=self.timeout
            )
        except HTTPError as error:
            raise _refused(error) from None
        except URLError as error:
            raise DataError(
                f"{self.url} does not answer ({error.reason}). Start it with `merit serve FOLDER`."
            ) from None
        return response


def _refused(error: HTTPError) -> MeritError:
    try:
        return ServiceError(shapes.Problem.model_validate_json(error.read()))
    except ValidationError:
        return DataError(f"The service answers {error.code} in words it should not use. Is it a merit service?")


def _plain(asked: BaseModel | Mapping[str, Any]) -> Any:
    return asked.model_dump(mode="json") if isinstance(asked, BaseModel) else dict(asked)


def _frame(answer: Any) -> pl.DataFrame:
    return pl.DataFrame([row.model_dump() for row in answer.items])
