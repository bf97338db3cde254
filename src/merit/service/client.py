"""A client with the methods of `merit.Model`: frames with the same columns, and errors that name the remedy.

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
from contextlib import suppress
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
from merit.service import campaign_schemas as campaigns
from merit.service import schemas
from merit.service.history_schemas import HistoryInterestsResponse, HistoryScoresResponse, SentHistory

T = TypeVar("T", bound=BaseModel)
Audience = AudienceRequest | Mapping[str, Any]
FINAL = ("DONE", "FAILED")


class ServiceError(MeritError):
    """A refusal of the service, with its problem."""

    def __init__(self, problem: schemas.Problem) -> None:
        super().__init__(f"{problem.detail} {problem.remedy} (request {problem.request_id})")
        self.problem = problem


class Client:
    """A method for each route: a refusal is a `ServiceError`, a service that does not answer a `DataError`."""

    def __init__(self, url: str, key: str, timeout: float = 60.0) -> None:
        if not url.startswith(("http://", "https://")):
            raise DataError(f"'{url}' is not an address of a service. Write it as http://127.0.0.1:8000.")
        self.url, self._key, self.timeout = url.rstrip("/"), key, timeout

    def interests(self, user: str, k: int = 10, diverse_regions: bool = False) -> pl.DataFrame:
        """The k most likely interests of a user."""
        path = f"/v1/users/{quote(user, safe='')}/interests"
        return _frame(self._get(path, schemas.InterestPage, k=k, diverse_regions=diverse_regions))

    def regions(self, user: str, k: int = 50) -> schemas.RegionsResponse:
        """How the k most likely interests of a user spread over regions of labels."""
        return self._get(f"/v1/users/{quote(user, safe='')}/regions", schemas.RegionsResponse, k=k)

    def history(self, user: str, limit: int = 100) -> Iterator[schemas.HistoryRow]:
        """The events of a user, the newest first, page after page."""
        return self._rows(f"/v1/users/{quote(user, safe='')}/history", schemas.HistoryRow, limit=limit)

    def verticals(self, user: str) -> pl.DataFrame:
        """The expected number of interests of each vertical that a user has."""
        return _frame(self._get(f"/v1/users/{quote(user, safe='')}/verticals", schemas.VerticalsResponse))

    def score(self, users: Sequence[str], interests: Sequence[str]) -> pl.DataFrame:
        """The probability of every pair."""
        body = {"users": list(users), "interests": list(interests)}
        return _frame(self._post("/v1/score", body, schemas.ScoresResponse))

    def score_pairs(self, users: Sequence[str], interests: Sequence[str]) -> pl.DataFrame:
        """The probability of the first user for the first interest, of the second for the second, and so on."""
        pairs = [{"user_id": user, "interest": text} for user, text in zip(users, interests, strict=True)]
        return _frame(self._post("/v1/score-pairs", {"pairs": pairs}, schemas.ScoresResponse))

    def interest(self, text: str) -> schemas.InterestResponse:
        """How the model understands a text."""
        return self._post("/v1/interest", {"text": text}, schemas.InterestResponse)

    def explain(self, user: str, interest: str, k: int = 10) -> pl.DataFrame:
        """Which events of a user carry the probability of an interest."""
        body = {"user_id": user, "interest": interest, "k": k}
        return _frame(self._post("/v1/explain", body, schemas.ExplanationResponse))

    def history_interests(
        self, histories: Sequence[SentHistory | Mapping[str, Any]], k: int = 10
    ) -> HistoryInterestsResponse:
        """The most likely interests of users by the histories that are sent; the service keeps nothing of them."""
        body = {"histories": [_plain(history) for history in histories], "k": k}
        return self._post("/v1/histories/interests", body, HistoryInterestsResponse)

    def history_scores(
        self, histories: Sequence[SentHistory | Mapping[str, Any]], interests: Sequence[str]
    ) -> pl.DataFrame:
        """The probability of every pair of these histories and interests, and what it rests on."""
        body = {"histories": [_plain(history) for history in histories], "interests": list(interests)}
        return _frame(self._post("/v1/histories/score", body, HistoryScoresResponse))

    def key(self) -> schemas.KeyResponse:
        """The key in use, and what it may do."""
        return self._get("/v1/key", schemas.KeyResponse)

    def card(self) -> str:
        """The model card as Markdown: what the model was made from, how good it is, what not to use it for."""
        return self._get("/v1/model/card", schemas.CardResponse).markdown

    def model(self) -> schemas.ModelResponse:
        """What is being served: its version, when it was made, how many users and labels it has."""
        return self._get("/v1/model", schemas.ModelResponse)

    def results(self) -> schemas.ResultsResponse:
        """The figures of the run's evaluation, both ways; an error where they are not beside the model."""
        return self._get("/v1/model/results", schemas.ResultsResponse)

    def calibration(self) -> schemas.CalibrationResponse:
        """Predicted probabilities and what came true for test users, overall and by vertical."""
        return self._get("/v1/model/calibration", schemas.CalibrationResponse)

    def label_map(self) -> schemas.LabelMapResponse:
        """The largest clusters of labels, with a position on a plane for each."""
        return self._get("/v1/label-map", schemas.LabelMapResponse)

    def labels(
        self, q: str = "", status: str = "live", limit: int = 100, cluster: int | None = None
    ) -> Iterator[schemas.LabelRow]:
        """Labels that begin with `q` or have such words, page after page."""
        return self._rows("/v1/labels", schemas.LabelRow, q=q, status=status, limit=limit, cluster=cluster)

    def label(self, number: int) -> schemas.LabelRow:
        """One label and its status."""
        return self._get(f"/v1/labels/{number}", schemas.LabelRow)

    def preview(self, request: Audience) -> campaigns.PreviewResponse:
        """All figures of an audience; nothing is written."""
        return self._post("/v1/audience/preview", request, campaigns.PreviewResponse)

    def sample(self, request: Audience, k: int = 6) -> campaigns.SampleResponse:
        """Some of the users who would be contacted."""
        return self._post(f"/v1/audience/sample?k={k}", request, campaigns.SampleResponse)

    def tables(self) -> campaigns.TablesResponse:
        """The tables that rules may name."""
        return self._get("/v1/tables", campaigns.TablesResponse)

    def build(self, request: Audience, idempotency: str | None = None) -> campaigns.JobResponse:
        """Start a job. Sent again with the same idempotency key, it is still one job."""
        return self._post("/v1/audience/jobs", request, campaigns.JobResponse, idempotency or secrets.token_hex(16))

    def job(self, number: str) -> campaigns.JobResponse:
        """The state of a job, by its id; one of another key is missing, unless this key is an admin's."""
        return self._get(f"/v1/audience/jobs/{quote(number, safe='')}", campaigns.JobResponse)

    def jobs(self, limit: int = 100) -> list[campaigns.JobResponse]:
        """All jobs that this key may see, the newest first; `limit` are fetched at a time."""
        return list(self._rows("/v1/audience/jobs", campaigns.JobResponse, limit=limit))

    def cancel(self, number: str) -> campaigns.JobResponse:
        """Cancel a job that waits or runs; one that has ended is an error."""
        return self._post(f"/v1/audience/jobs/{quote(number, safe='')}/cancel", None, campaigns.JobResponse)

    def wait(self, job: campaigns.JobResponse, seconds: float = 600.0, every: float = 0.2) -> campaigns.JobResponse:
        """The job once it is done. One that failed is an error with its reason."""
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
        content, headers = self._send("GET", f"/v1/audience/jobs/{quote(number, safe='')}/export?{query}")
        if sha256(content).hexdigest() != headers["X-Content-SHA256"]:
            raise DataError("The file did not arrive whole. Export it again.")
        files.write(out, content)
        return out

    def design(self, design: ExperimentDesign | Mapping[str, Any]) -> campaigns.DesignResponse:
        """The users a design needs, its power, and the file to keep."""
        return self._post("/v1/experiments/design", design, campaigns.DesignResponse)

    def analyze(self, request: campaigns.AnalysisRequest | Mapping[str, Any]) -> Analysis:
        """An experiment from its design and its sufficient statistics."""
        return self._post("/v1/experiments/analyze", request, Analysis)

    def analyze_table(
        self,
        design: ExperimentDesign | Mapping[str, Any],
        table: Path,
        until: date | None = None,
        assigned: int | None = None,
    ) -> Analysis:
        """The same from a table of users, which is sent, read once and not stored."""
        fields = {"design": json.dumps(_plain(design)), "until": until, "assigned": assigned}
        content, kind = _form({name: str(value) for name, value in fields.items() if value is not None}, table)
        answer, _ = self._send("POST", "/v1/experiments/analyze-table", content, {"Content-Type": kind})
        return _parsed(Analysis, answer)

    def analyze_named(self, request: campaigns.NamedAnalysisRequest | Mapping[str, Any]) -> Analysis:
        """The same from a table that the service has."""
        return self._post("/v1/experiments/analyze-named", request, Analysis)

    def erase(
        self, users: Sequence[str], reason: str = "", idempotency: str | None = None
    ) -> campaigns.ErasureResponse:
        """Hide users at once and start to purge them. The same idempotency key starts no second one."""
        body = {"users": list(users), "reason": reason}
        return self._post("/v1/erasures", body, campaigns.ErasureResponse, idempotency or secrets.token_hex(16))

    def erasure(self, number: str) -> campaigns.ErasureResponse:
        """The state of an erasure, and its certificate once it is done."""
        return self._get(f"/v1/erasures/{quote(number, safe='')}", campaigns.ErasureResponse)

    def reload(self) -> schemas.ReloadResponse:
        """Serve what the model's folder now holds; if it cannot be opened, that is an error and the old model stays."""
        return self._post("/v1/admin/reload", None, schemas.ReloadResponse)

    def health(self) -> schemas.HealthResponse:
        """That the process answers."""
        return self._get("/health", schemas.HealthResponse)

    def ready(self) -> schemas.ReadyResponse:
        """That a model is open, and which."""
        return self._get("/ready", schemas.ReadyResponse)

    def metrics(self) -> str:
        """Metrics in Prometheus' text format."""
        return self._send("GET", "/metrics")[0].decode("utf-8")

    def _rows(self, path: str, row: type[T], **query: Any) -> Iterator[T]:
        """The rows of a list, page after page, as each names the next."""
        cursor, more = None, True
        while more:
            page = self._get(path, schemas.PageResponse[row], **query, cursor=cursor)  # type: ignore[valid-type]
            yield from page.items
            cursor, more = page.next, page.next is not None

    def _get(self, path: str, response: type[T], **query: Any) -> T:
        query = {name: value for name, value in query.items() if value is not None}
        return _parsed(response, self._send("GET", f"{path}?{urlencode(query)}" if query else path)[0])

    def _post(self, path: str, body: Any, response: type[T], idempotency: str | None = None) -> T:
        data = None if body is None else json.dumps(_plain(body), allow_nan=False).encode()
        headers = {"Content-Type": "application/json"} if data else {}
        headers |= {"Idempotency-Key": idempotency} if idempotency else {}
        return _parsed(response, self._send("POST", path, data, headers)[0])

    def _send(
        self, method: str, path: str, data: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> tuple[bytes, Message]:
        """The whole answer and its headers; a DataError if the service does not answer, or stops in the middle."""
        all_headers = {"Authorization": f"Bearer {self._key}", **(headers or {})}
        request = Request(self.url + path, data, all_headers, method=method)  # __init__ has checked the scheme
        try:
            with urlopen(request, timeout=self.timeout) as response:
                return response.read(), response.headers
        except HTTPError as error:
            with suppress(ValidationError):
                raise ServiceError(schemas.Problem.model_validate_json(error.read())) from None
            raise DataError(
                f"The service answers {error.code} without a problem document. Check that it is a merit service."
            ) from None
        except (OSError, HTTPException) as error:
            reason = error.reason if isinstance(error, URLError) else str(error) or type(error).__name__
            raise DataError(f"{self.url} does not answer ({reason}). Start it with `merit serve FOLDER`.") from None


def _parsed(response: type[T], content: bytes) -> T:
    """Unknown keys are ignored: a newer service may add some."""
    return response.model_validate_json(content, extra="ignore")


def _plain(request: BaseModel | Mapping[str, Any]) -> Any:
    return request.model_dump(mode="json") if isinstance(request, BaseModel) else dict(request)


def _form(fields: Mapping[str, str], table: Path) -> tuple[bytes, str]:
    """multipart/form-data and its type. Of the table's name only the suffix is sent: the service reads nothing else."""
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
