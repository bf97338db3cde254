"""Routes about a user and an interest: what `merit.Model` answers, as JSON."""

from __future__ import annotations

from typing import Annotated

import numpy as np
import polars as pl
from fastapi import Path, Query

from merit.core.errors import DataError
from merit.service import cursors, schemas
from merit.service.asking import Cursor, TheModel, offset_of, require_user
from merit.service.limits import LONGEST_ID, MOST_INTERESTS, MOST_K, MOST_PAIRS, MOST_REGIONS_OF

User = Annotated[str, Path(min_length=1, max_length=LONGEST_ID, description="as in the interactions")]


def interests(
    served: TheModel,
    user_id: User,
    k: Annotated[int, Query(ge=1, le=MOST_K, description="interests of a page")] = 10,
    cursor: Cursor = None,
    diverse_regions: Annotated[
        bool, Query(description="of as many regions of interest as there are; one page")
    ] = False,
) -> schemas.InterestPage:
    """The most likely interests of a user, best first."""
    require_user(served, user_id)
    if diverse_regions and cursor:
        raise DataError("A diverse list is chosen as a whole and has one page. Ask for a larger k.")
    about = ("interests", served.version, user_id)
    first = offset_of(cursor, MOST_K, *about)
    most = min(MOST_K, served.model.live)
    last = min(first + k, most)
    rows = served.model.interests(user_id, last, diverse_regions)[first:] if last > first else None
    return schemas.InterestPage(
        user_id=user_id,
        model=served.version,
        items=[schemas.InterestRow.model_validate(row) for row in rows.to_dicts()] if rows is not None else [],
        next=cursors.write(last, *about) if last < most and not diverse_regions else None,
    )


def regions(
    served: TheModel,
    user_id: User,
    k: Annotated[int, Query(ge=1, le=MOST_REGIONS_OF, description="interests that are looked at, the best")] = 50,
) -> schemas.Regions:
    """How the most likely interests of a user spread over regions: clusters of labels that mean something alike."""
    require_user(served, user_id)
    most = min(k, served.model.live)
    found = served.model.interests(user_id, most).drop("user_id")
    clusters = served.model.labels.table.select(interest="text", cluster="cluster")
    rows = found.join(clusters, on="interest", how="left", maintain_order="left")
    told = [_region(part) for part in rows.partition_by("cluster", maintain_order=True)]
    shares = np.array([each.expected for each in told])
    shares = shares[shares > 0] / max(shares.sum(), 1e-12)
    return schemas.Regions(
        user_id=user_id,
        model=served.version,
        effective=float(np.exp(-(shares * np.log(shares)).sum())),
        items=sorted(told, key=lambda each: -each.expected),
    )


def _region(rows: pl.DataFrame) -> schemas.Region:
    cluster = rows["cluster"][0]
    return schemas.Region(
        cluster=None if cluster == -1 else cluster,
        name=rows["interest"][0],
        expected=float(rows["probability"].sum()),
        interests=[schemas.InterestRow.model_validate(row) for row in rows.drop("cluster").to_dicts()],
    )


def verticals(served: TheModel, user_id: User) -> schemas.Verticals:
    """How many interests of each vertical a user is expected to have."""
    require_user(served, user_id)
    rows = served.model.verticals(user_id).to_dicts()
    items = [schemas.VerticalRow.model_validate(row) for row in rows]
    return schemas.Verticals(user_id=user_id, model=served.version, items=items)


def score(served: TheModel, asked: schemas.ScoreAsked) -> schemas.Scores:
    """The probability of every pair of these users and interests."""
    if len(asked.users) * len(asked.interests) > MOST_PAIRS:
        raise DataError(f"At most {MOST_PAIRS:,} pairs are scored at once. Ask in parts.")
    with served.reading(asked.interests) as model:
        rows = model.score(asked.users, asked.interests).to_dicts()
    return schemas.Scores(model=served.version, items=[schemas.ScoreRow.model_validate(row) for row in rows])


def score_pairs(served: TheModel, asked: schemas.PairsAsked) -> schemas.Scores:
    """The probability of each pair, in the order given."""
    texts = [pair.interest for pair in asked.pairs]
    if len(set(texts)) > MOST_INTERESTS:
        raise DataError(f"At most {MOST_INTERESTS} different interests are scored at once. Ask in parts.")
    with served.reading(set(texts)) as model:
        rows = model.score_pairs([pair.user_id for pair in asked.pairs], texts).to_dicts()
    return schemas.Scores(model=served.version, items=[schemas.ScoreRow.model_validate(row) for row in rows])


def interest(served: TheModel, asked: schemas.InterestAsked) -> schemas.Meaning:
    """What a phrase means to the model, and how well it knows it. Blocked interests are refused."""
    found = served.interest(asked.text)
    far = f"This is far from every interest the model knows (nearest: '{found.nearest}'): take its scores as a guess."
    return schemas.Meaning(
        text=found.text,
        label=found.label if found.label >= 0 else None,
        nearest=found.nearest,
        similarity=found.similarity,
        products=found.products,
        far=found.far,
        warning=far if found.far else None,
    )


def explain(served: TheModel, asked: schemas.ExplainAsked) -> schemas.Explanation:
    """Which events of a user carry the probability of an interest: it is computed again without each of them."""
    require_user(served, asked.user_id)
    served.interest(asked.interest)  # what may not be asked for is refused before a process is started
    rows = served.explainer.ask(asked.user_id, asked.interest, asked.k)
    return schemas.Explanation(
        user_id=asked.user_id,
        interest=asked.interest,
        model=served.version,
        items=[schemas.EvidenceRow.model_validate(row) for row in rows],
    )
