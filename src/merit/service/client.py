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
from datetime import date
from email.message import Message
from hashlib import sha256
from http.client import HTTPException
from pathlib import Path
from typing import Any, TypeVar
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlencode
from urllib.request import Request, urlopen

import polars as pl
from pydantic import BaseModel, ValidationError

from merit.campaigns.audiences.export import Form
from merit.campaigns.audiences.request import AudienceRequest
from merit.campaigns.experiments.analysis import Analysis
from merit.campaigns.experiments.design import ExperimentDesign
from merit.core import files
from merit.core.errors import DataError, MeritError
from merit.service import schemas

T = TypeVar("T", bound=BaseModel)
P = TypeVar("P", schemas.HistoryPage, schemas.LabelPage, schemas.JobPage)
Audience = AudienceRequest | Mapping[str, Any]
FINAL = ("DONE", "FAILED")


class ServiceError(MeritError):
    """What a service refused, with its problem."""

    def __init__(self, problem: schemas.Problem) -> None:
        super().__init__(f"{problem.detail} {problem.remedy} (request {problem.request_id})")
        self.problem = problem


class Client:
    """A method for each route: a refusal is a `ServiceError`, a service that does not answer a `DataError`."""

    def __init__(self, url: str, key: str, timeout: float = 60.0) -> None:
        if not url.startswith(("http://", "https://")):
            raise DataError(f"'{url}' is no address of a service. Write it as http://127.0.0.1:8000.")
        self.url, self._key, self.timeout = url.rstrip("/"), key, timeout

    def interests(self, user: str, k: int = 10, diverse_regions: bool = False) -> pl.DataFrame:
        """The k most likely interests of a user."""
        query = urlencode({"k": k, "diverse_regions": str(diverse_regions).lower()})
        return _frame(self._get(f"/v1/users/{quote(user, safe='')}/interests?{query}", schemas.InterestPage))

    def regions(self, user: str, k: int = 50) -> schemas.Regions:
        """How the k most likely interests of a user spread over regions of labels."""
        return self._get(f"/v1/users/{quote(user, safe='')}/regions?k={k}", schemas.Regions)

    def history(self, user: str, limit: int = 100) -> Iterator[schemas.HistoryRow]:
        """What a user did, the newest first, page after page."""
        for page in self._pages(f"/v1/users/{quote(user, safe='')}/history", {"limit": limit}, schemas.HistoryPage):
            yield from page.items

    def verticals(self, user: str) -> pl.DataFrame:
        """How many interests of each vertical a user is expected to have."""
        return _frame(self._get(f"/v1/users/{quote(user, safe='')}/verticals", schemas.Verticals))

    def score(self, users: Sequence[str], interests: Sequence[str]) -> pl.DataFrame:
        """The probability of every pair."""
        return _frame(self._post("/v1/score", {"users": list(users), "interests": list(interests)}, schemas.Scores))

    def score_pairs(self, users: Sequence[str], interests: Sequence[str]) -> pl.DataFrame:
        """The probability of the first user for the first interest, of the second for the second, and so on."""
        pairs = [{"user_id": user, "interest": text} for user, text in zip(users, interests, strict=True)]
        return _frame(self._post("/v1/score-pairs", {"pairs": pairs}, schemas.Scores))

    def interest(self, text: str) -> schemas.Meaning:
        """What a text means to the model."""
        return self._post("/v1/interest", {"text": text}, schemas.Meaning)

    def explain(self, user: str, interest: str, k: int = 10) -> pl.DataFrame:
        """Which events of a user carry the probability of an interest."""
        return _frame(self._post("/v1/explain", {"user_id": user, "interest": interest, "k": k}, schemas.Explanation))

    def key(self) -> schemas.KeyFacts:
        """The key in use, and what it may do."""
        return self._get("/v1/key", schemas.KeyFacts)

    def card(self) -> str:
        """The model card as Markdown: what the model was made from, how good it is, what not to use it for."""
        return self._get("/v1/model/card", schemas.Card).markdown

    def model(self) -> schemas.ModelFacts:
        """What is being served: its version, when it was made, how many users and labels it has."""
        return self._get("/v1/model", schemas.ModelFacts)

    def results(self) -> schemas.Results:
        """The figures of the run's evaluation, both ways; an error where they are not beside the model."""
        return self._get("/v1/model/results", schemas.Results)

    def calibration(self) -> schemas.Calibration:
        """What was promised to test users and what came true, overall and by vertical."""
        return self._get("/v1/model/calibration", schemas.Calibration)

    def label_map(self) -> schemas.LabelMap:
        """The largest clusters of labels, with a place on a plane for each."""
        return self._get("/v1/label-map", schemas.LabelMap)

    def labels(
        self, q: str = "", status: str = "live", limit: int = 100, cluster: int | None = None
    ) -> Iterator[schemas.LabelRow]:
        """Labels that begin so or have such words, page after page."""
        query = {"q": q, "status": status, "limit": limit, "cluster": cluster}
        for page in self._pages("/v1/labels", query, schemas.LabelPage):
            yield from page.items

    def label(self, number: int) -> schemas.LabelRow:
        """One label and its status."""
        return self._get(f"/v1/labels/{number}", schemas.LabelRow)

    def preview(self, request: Audience) -> schemas.Preview:
        """Everything about an audience, and nothing written."""
        return self._post("/v1/audience/preview", _plain(request), schemas.Preview)

    def sample(self, request: Audience, k: int = 6) -> schemas.Sample:
        """Some of those who would be contacted."""
        return self._post(f"/v1/audience/sample?k={k}", _plain(request), schemas.Sample)

    def tables(self) -> schemas.Tables:
        """The tables that rules may name."""
        return self._get("/v1/tables", schemas.Tables)

    def build(self, request: Audience, idempotency: str | None = None) -> schemas.JobTold:
        """Start a job. Sent again with the same word of idempotency, it is still one job."""
        headers = {"Idempotency-Key": idempotency or secrets.token_hex(16)}
        return self._post("/v1/audience/jobs", _plain(request), schemas.JobTold, headers)

    def job(self, number: str) -> schemas.JobTold:
        """How a job stands, by its id; one of another key is not there, unless this key is an admin's."""
        return self._get(f"/v1/audience/jobs/{quote(number, safe='')}", schemas.JobTold)

    def jobs(self, limit: int = 100) -> list[schemas.JobTold]:
        """All that this key may see, the newest first; `limit` are fetched at a time."""
        pages = self._pages("/v1/audience/jobs", {"limit": limit}, schemas.JobPage)
        return [job for page in pages for job in page.items]

    def cancel(self, number: str) -> schemas.JobTold:
        """Give up a job that waits or runs; one that ended by itself is an error."""
        return self._post(f"/v1/audience/jobs/{quote(number, safe='')}/cancel", None, schemas.JobTold)

    def wait(self, job: schemas.JobTold, seconds: float = 600.0, every: float = 0.2) -> schemas.JobTold:
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
        content, headers = self._ask("GET", f"/v1/audience/jobs/{quote(number, safe='')}/export?{query}")
        if sha256(content).hexdigest() != headers["X-Content-SHA256"]:
            raise DataError("The file did not arrive whole. Export it again.")
        files.write(out, content)
        return out

    def design(self, asked: ExperimentDesign | Mapping[str, Any]) -> schemas.DesignTold:
        """What a design needs and can see, and the file to keep."""
        return self._post("/v1/experiments/design", _plain(asked), schemas.DesignTold)

    def analyze(self, asked: schemas.AnalysisAsked | Mapping[str, Any]) -> Analysis:
        """An experiment from its design and its sufficient statistics."""
        return self._post("/v1/experiments/analyze", _plain(asked), Analysis)

    def analyze_table(
        self,
        design: ExperimentDesign | Mapping[str, Any],
        table: Path,
        until: date | None = None,
        assigned: int | None = None,
    ) -> Analysis:
        """The same from a table of users, which is sent, read once and not kept."""
        known = {"design": json.dumps(_plain(design)), "until": until, "assigned": assigned}
        fields = {name: str(value) for name, value in known.items() if value is not None}
        content, kind = _form(fields, table)
        told, _ = self._ask("POST", "/v1/experiments/analyze-table", content, {"Content-Type": kind})
        return Analysis.model_validate_json(told)

    def analyze_named(self, asked: schemas.NamedAnalysisAsked | Mapping[str, Any]) -> Analysis:
        """The same from a table that the service has."""
        return self._post("/v1/experiments/analyze-named", _plain(asked), Analysis)

    def erase(self, users: Sequence[str], reason: str = "", idempotency: str | None = None) -> schemas.ErasureTold:
        """Hide users at once and start to purge them. Sent again with the same word, it is still one erasure."""
        headers = {"Idempotency-Key": idempotency or secrets.token_hex(16)}
        return self._post("/v1/erasures", {"users": list(users), "reason": reason}, schemas.ErasureTold, headers)

    def erasure(self, number: str) -> schemas.ErasureTold:
        """How an erasure stands, and its certificate once it is done."""
        return self._get(f"/v1/erasures/{quote(number, safe='')}", schemas.ErasureTold)

    def reload(self) -> schemas.Reloaded:
        """Serve what the model's folder now holds; if that is no good, it is an error and the old model stays."""
        return self._post("/v1/admin/reload", None, schemas.Reloaded)

    def health(self) -> schemas.Health:
        """That the process answers."""
        return self._get("/health", schemas.Health)

    def ready(self) -> schemas.Ready:
        """That a model is open, and which."""
        return self._get("/ready", schemas.Ready)

    def metrics(self) -> str:
        """Figures as Prometheus reads them."""
        return self._ask("GET", "/metrics")[0].decode("utf-8")

    def _pages(self, path: str, query: Mapping[str, Any], shape: type[P]) -> Iterator[P]:
        """Page after page, as each names the next."""
        asked = {name: value for name, value in query.items() if value is not None}
        cursor: str | None = ""
        while cursor is not None:
            page = self._get(f"{path}?{urlencode(asked | ({'cursor': cursor} if cursor else {}))}", shape)
            yield page
            cursor = page.next

    def _get(self, path: str, shape: type[T]) -> T:
        return shape.model_validate_json(self._ask("GET", path)[0])

    def _post(self, path: str, body: Any, shape: type[T], headers: Mapping[str, str] | None = None) -> T:
        data, kind = None, {}
        if body is not None:
            data, kind = json.dumps(body, allow_nan=False).encode(), {"Content-Type": "application/json"}
        return shape.model_validate_json(self._ask("POST", path, data, {**kind, **(headers or {})})[0])

    def _ask(
        self, method: str, path: str, data: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> tuple[bytes, Message]:
        """The whole answer and its headers. A service that goes away in the middle of one does not answer."""
        sent = {"Authorization": f"Bearer {self._key}", **(headers or {})}
        asked = Request(self.url + path, data, sent, method=method)  # the scheme was looked at when the client was made
        try:
            with urlopen(asked, timeout=self.timeout) as response:
                return response.read(), response.headers
        except HTTPError as error:
            raise _refused(error) from None
        except (OSError, HTTPException) as error:
            reason = error.reason if isinstance(error, URLError) else str(error) or type(error).__name__
            raise DataError(f"{self.url} does not answer ({reason}). Start it with `merit serve FOLDER`.") from None


def _refused(error: HTTPError) -> MeritError:
    try:
        return ServiceError(schemas.Problem.model_validate_json(error.read()))
    except ValidationError:
        return DataError(f"The service answers {error.code} in words it should not use. Is it a merit service?")


def _plain(asked: BaseModel | Mapping[str, Any]) -> Any:
    return asked.model_dump(mode="json") if isinstance(asked, BaseModel) else dict(asked)


def _form(fields: Mapping[str, str], table: Path) -> tuple[bytes, str]:
    """multipart/form-data and its type. Of the table's name, the service reads the end only: no other part is sent."""
    mark = secrets.token_hex(16)
    head = f'--{mark}\r\nContent-Disposition: form-data; name="'
    texts = "".join(f'{head}{name}"\r\n\r\n{value}\r\n' for name, value in fields.items())
    file = f'{head}table"; filename="table{table.suffix}"\r\nContent-Type: application/octet-stream\r\n\r\n'
    try:
        content = table.read_bytes()
    except OSError as error:
        raise DataError(
            f"{table} cannot be read ({error.strerror}). Name a file with a row per assigned user."
        ) from None
    return (texts + file).encode() + content + f"\r\n--{mark}--\r\n".encode(), f"multipart/form-data; boundary={mark}"


def _frame(answer: Any) -> pl.DataFrame:
    return pl.DataFrame([row.model_dump() for row in answer.items])
