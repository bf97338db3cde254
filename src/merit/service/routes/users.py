"""Routes about users and interests: the answers of `merit.Model` as JSON, the history that it has read, and erasures.

Erased users are hidden before the answer comes, purged as a job, with a certificate at the end.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Annotated

import polars as pl
from fastapi import Path, Query
from fastapi.responses import Response

from merit.core.errors import DataError
from merit.labels import space
from merit.service import schemas
from merit.service.campaign_schemas import ErasureRequest, ErasureResponse
from merit.service.dependencies import (
    Caller,
    Cursor,
    Idempotency,
    Limit,
    TheModel,
    TheService,
    owner_of,
    page_of,
    require_user,
)
from merit.service.schemas import LONGEST_ID, MOST_INTERESTS, MOST_K, MOST_PAIRS
from merit.service.store import Served

MOST_REGIONS_OF = 200  # interests of a user, by region
User = Annotated[str, Path(min_length=1, max_length=LONGEST_ID, description="as in the interactions")]
Erasure = Annotated[str, Path(max_length=LONGEST_ID, pattern="^[0-9a-zA-Z]+$", description="the id of an erasure")]
TIMES = pl.Schema({"item": pl.UInt32(), "at": pl.String(), "event": pl.String()})


def interests(
    served: TheModel,
    user_id: User,
    k: Annotated[int, Query(ge=1, le=MOST_K, description="interests of a page")] = 10,
    cursor: Cursor = None,
    diverse_regions: Annotated[bool, Query(description="from as many regions as possible; one page")] = False,
) -> schemas.InterestPage:
    """The most likely interests of a user, best first."""
    require_user(served, user_id)
    if diverse_regions and cursor:
        raise DataError("A diverse list is chosen as a whole and has one page. Ask for a larger k.")
    page, next_page = page_of(cursor, k, min(MOST_K, served.model.live), "interests", served.version, user_id)
    rows = served.model.interests(user_id, page.stop, diverse_regions)[page]
    return schemas.InterestPage(
        user_id=user_id,
        model=served.version,
        items=rows.to_dicts(),
        next=None if diverse_regions else next_page,
    )


def regions(
    served: TheModel,
    user_id: User,
    k: Annotated[int, Query(ge=1, le=MOST_REGIONS_OF, description="the number of top interests used")] = 50,
) -> schemas.RegionsResponse:
    """How the most likely interests of a user spread over regions: clusters of similar labels."""
    require_user(served, user_id)
    top = served.model.interests(user_id, min(k, served.model.live)).drop("user_id")
    clusters = served.model.labels.table.select(interest="text", cluster="cluster")
    rows = top.join(clusters, on="interest", how="left", maintain_order="left")
    items = rows.group_by(pl.col("cluster").replace(-1, None), maintain_order=True).agg(
        name=pl.col("interest").first(), expected=pl.col("probability").sum(), interests=pl.struct(top.columns)
    )
    entropy = items["expected"].filter(items["expected"] > 0).entropy() or 0.0
    items = items.sort("expected", descending=True, maintain_order=True)
    return schemas.RegionsResponse(
        user_id=user_id, model=served.version, effective=math.exp(entropy), items=items.to_dicts()
    )


def verticals(served: TheModel, user_id: User) -> schemas.VerticalsResponse:
    """The expected number of interests of each vertical that a user has."""
    require_user(served, user_id)
    rows = served.model.verticals(user_id).to_dicts()
    return schemas.VerticalsResponse(user_id=user_id, model=served.version, items=rows)


def history(served: TheModel, user_id: User, limit: Limit = 50, cursor: Cursor = None) -> schemas.HistoryPage:
    """The events of a user, the newest first, and the interests of each item."""
    require_user(served, user_id)
    items = served.model.users.filter(pl.col("user_id") == user_id)["items"][0].reverse()
    page, next_page = page_of(cursor, limit, len(items), "history", served.version, user_id)
    rows = _timed(served, user_id, items)[page]
    named = rows.join(_titles(served, rows["item"]), on="item", how="left", maintain_order="left").drop("item")
    return schemas.HistoryPage(
        user_id=user_id,
        model=served.version,
        total=len(items),
        items=named.to_dicts(),
        next=next_page,
    )


def _timed(served: Served, user: str, items: pl.Series) -> pl.DataFrame:
    """The items with times and events, which the model does not keep: from the run's examples, where they agree."""
    untimed = pl.DataFrame({"item": items, "at": None, "event": None}, schema=TIMES)
    corpus = served.beside("corpus", "corpus", served.model.artifact.manifest.parents["corpus"].hash)
    examples = corpus and served.beside("examples", "examples", corpus.manifest.parents["examples"].hash)
    if not examples:
        return untimed
    for number in range(examples.manifest.summary["shards"]):
        users = pl.scan_parquet(examples.file(f"users-{number:05}.parquet")).filter(pl.col("user_id") == user)
        if len(row := users.select("user").collect()):
            events = pl.scan_parquet(examples.file(f"events-{number:05}.parquet")).filter(pl.col("user") == row.item())
            at = pl.col("timestamp").dt.to_string("iso:strict")
            events = events.select("item", at=at, event=pl.col("event").cast(pl.String))
            newest = events.tail(len(items)).reverse().collect()
            return newest if newest["item"].equals(items) else untimed
    return untimed


def _titles(served: Served, items: pl.Series) -> pl.DataFrame:
    """item, item_id, title, interests: live labels only."""
    table = pl.scan_parquet(served.model.artifact.file("items.parquet"))
    rows = table.filter(pl.col("item").is_in(items.unique().implode())).collect()
    dense = rows.with_columns(item=pl.int_range(pl.len()))  # offsets have an entry for every number up to the largest
    offsets, labels = space.item_labels(served.model.labels, dense)
    texts = served.model.labels.table["text"]
    interests = [texts.gather(labels[start:stop]).to_list() for start, stop in pairwise(offsets)]
    return rows.select("item", "item_id", "title", interests=pl.Series(interests, dtype=pl.List(pl.String)))


def score(served: TheModel, request: schemas.ScoreRequest) -> schemas.ScoresResponse:
    """The probability of every pair of these users and interests."""
    if len(request.users) * len(request.interests) > MOST_PAIRS:
        raise DataError(f"At most {MOST_PAIRS:,} pairs are scored at once. Split the request.")
    with served.reading(request.interests) as model:
        rows = model.score(request.users, request.interests)
    return schemas.ScoresResponse(model=served.version, items=rows.to_dicts())


def score_pairs(served: TheModel, request: schemas.ScorePairsRequest) -> schemas.ScoresResponse:
    """The probability of each pair, in the order given."""
    texts = [pair.interest for pair in request.pairs]
    if len(set(texts)) > MOST_INTERESTS:
        raise DataError(f"At most {MOST_INTERESTS} different interests are scored at once. Split the request.")
    with served.reading(set(texts)) as model:
        rows = model.score_pairs([pair.user_id for pair in request.pairs], texts)
    return schemas.ScoresResponse(model=served.version, items=rows.to_dicts())


def interest(served: TheModel, request: schemas.InterestRequest) -> schemas.InterestResponse:
    """How the model understands a phrase. Blocked interests are refused."""
    query = served.interest(request.text)
    far = f"This is far from every interest the model knows (nearest: '{query.nearest}'): take its scores as a guess."
    changes = {"label": query.label if query.label >= 0 else None, "warning": far if query.far else None}
    return schemas.InterestResponse.model_validate(vars(query) | changes | {"products": query.products})


def explain(served: TheModel, request: schemas.ExplainRequest) -> schemas.ExplanationResponse:
    """Which events of a user carry the probability of an interest: it is computed again without each of them."""
    require_user(served, request.user_id)
    served.interest(request.interest)  # a blocked interest is refused before a process is started
    rows = served.explainer.explain(request.user_id, request.interest, request.k)
    return schemas.ExplanationResponse(
        user_id=request.user_id, interest=request.interest, model=served.version, items=rows
    )


def erase(
    service: TheService,
    caller: Caller,
    request: ErasureRequest,
    response: Response,
    idempotency: Idempotency = None,
) -> ErasureResponse:
    """Hide these users from the next request on, and start a job that purges every file of them."""
    job = service.erasures.submit(caller.id, request.users, request.reason, idempotency)
    response.headers["Location"] = f"/v1/erasures/{job.id}"
    return ErasureResponse(**job.model_dump(), certificate=service.erasures.certificate(job))


def erasure(service: TheService, caller: Caller, number: Erasure) -> ErasureResponse:
    """The state of an erasure, and its certificate once it is done."""
    job = service.erasures.get(number, owner_of(caller))
    return ErasureResponse(**job.model_dump(), certificate=service.erasures.certificate(job))
