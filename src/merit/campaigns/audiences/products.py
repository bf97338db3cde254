"""The products that an audience is about, as masks over a model's items: those of an interest, a list or a rule."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import polars as pl

from merit.campaigns import tables
from merit.campaigns.audiences.request import AudienceRequest, ProductList, ProductRule, Products
from merit.core.config import Frozen
from merit.core.errors import DataError, PolicyError
from merit.core.ragged import Ragged, owners
from merit.core.types import Ints
from merit.propensity.purchases import Mask
from merit.retrieval.model import Model
from merit.retrieval.query import MOST, Interest

SHOWN = 3  # unknown ids in a note


class ResolvedProducts(Frozen):
    """A list or rule of products as the model understood it."""

    name: str
    products: int
    """Known to the model."""
    unknown: int = 0
    """Ids of the list that the model does not know."""
    examples: tuple[str, ...] = ()
    blocked: int = 0
    """Left out, as they carry a label that the policy blocks."""


def products_of_interest(model: Model, interest: Interest) -> Mask:
    """By item: the products that carry a label, or that name a phrase."""
    items = model.windows.item_labels
    wanted = np.zeros(len(items), dtype=bool)
    if interest.label >= 0 and interest.named is None:
        wanted[owners(items)[items.values == interest.label]] = True
    elif interest.named is not None:
        wanted[interest.named.items[interest.named.weights >= MOST]] = True
    if not wanted.any():
        raise DataError(
            f"No product carries or names '{interest.text}', so that nobody can buy it within a window. Choose a label "
            "of the model (`merit labels search`), list products, or leave within out."
        )
    return wanted


def resolve(model: Model, wanted: Products) -> tuple[Mask, ResolvedProducts]:
    """By item: whether it is one of these products. Those with a blocked label are left out, unless they are most."""
    mask, resolved = _listed(model, wanted) if isinstance(wanted, ProductList) else _matching(model, wanted)
    blocked = mask & _blocked(model)
    if 2 * blocked.sum() >= mask.sum():
        raise PolicyError(
            f"Half of the products of {resolved.name} or more carry labels that the sensitive-interest policy blocks "
            "(docs/policy.md): they may not stand for what it blocks. Choose other products."
        )
    left = mask & ~blocked
    return left, resolved.model_copy(update={"products": int(left.sum()), "blocked": int(blocked.sum())})


def _listed(model: Model, wanted: ProductList) -> tuple[Mask, ResolvedProducts]:
    column = pl.col(wanted.item).cast(pl.String).str.strip_chars().alias("id")
    with tables.scanning(wanted.table, "products =", [wanted.item], lambda frame, _: frame.select(column)) as frame:
        ids = (
            frame.drop_nulls().filter(pl.col("id") != "").unique(maintain_order=True).collect(engine="streaming")["id"]
        )
    if ids.is_empty():
        raise DataError(f"{wanted.table} lists no product. Write ids into its column '{wanted.item}'.")
    known, unknown = (
        model.items["item_id"].is_in(ids.implode()),
        ids.filter(~ids.is_in(model.items["item_id"].implode())),
    )
    if len(unknown) == len(ids):
        raise DataError(
            f"{wanted.table}: none of its {len(ids):,} products is known to the model, such as '{ids[0]}'; the model "
            f"has '{model.items['item_id'][0]}'. Write ids alike (leading zeros, prefixes)."
        )
    examples = tuple(unknown.head(SHOWN))
    return known.to_numpy(), ResolvedProducts(
        name=str(wanted.table), products=int(known.sum()), unknown=len(unknown), examples=examples
    )


def _matching(model: Model, wanted: ProductRule) -> tuple[Mask, ResolvedProducts]:
    items, name = model.items, title_of(wanted)
    tests = []
    if wanted.vertical:
        _require_values("vertical", wanted.vertical, items["vertical"].drop_nulls().unique())
        tests.append(_folded(pl.col("vertical")).is_in(_lowered(wanted.vertical)))
    if wanted.tag:
        _require_values("tag", wanted.tag, items["tags"].explode(empty_as_null=False).drop_nulls().unique())
        tests.append(pl.col("tags").list.eval(_folded(pl.element()).is_in(_lowered(wanted.tag))).list.any())
    tests += [_folded(pl.col("title")).str.contains(word, literal=True) for word in wanted.title.lower().split()]
    mask = items.select(wanted=pl.all_horizontal(tests).fill_null(False))["wanted"].to_numpy()
    if not mask.any():
        raise DataError(f"No product of the model meets the rule '{name}'. Leave a part of it out.")
    return mask, ResolvedProducts(name=name, products=int(mask.sum()))


def title_of(rule: ProductRule) -> str:
    """The rule as text."""
    parts = [", ".join(rule.vertical), ", ".join(rule.tag), f'"{rule.title.strip()}"' if rule.title.strip() else ""]
    return " and ".join(part for part in parts if part)


def _require_values(what: str, wanted: Sequence[str], values: pl.Series) -> None:
    known = set(_lowered(values.to_list()))
    if missing := [value for value in wanted if value.strip().lower() not in known]:
        examples = ", ".join(f"'{value}'" for value in values.sort().head(5))
        raise DataError(f"No product of the model has the {what} '{missing[0]}'. There are {examples} and others.")


def _lowered(values: Sequence[str]) -> list[str]:
    return [value.strip().lower() for value in values]


def _folded(column: pl.Expr) -> pl.Expr:
    return column.str.strip_chars().str.to_lowercase()


def _blocked(model: Model) -> Mask:
    """By item: whether it carries a label that the policy blocks."""
    tags = model.items.select("item", tag="tags").explode("tag", empty_as_null=False).drop_nulls()
    distinct = tags["tag"].unique()
    numbers = model.labels.find(distinct.to_list())
    blocked = (model.labels.table["status"] == "blocked").to_numpy()
    named = distinct.filter(pl.Series((numbers >= 0) & np.append(blocked, False)[numbers]))
    return model.items["item"].is_in(tags.filter(pl.col("tag").is_in(named.implode()))["item"].implode()).to_numpy()


def texts_of_rules(request: AudienceRequest) -> Iterator[str]:
    """The words by which rules choose products, for the policy."""
    for rule in request.products:
        if isinstance(rule, ProductRule):
            yield from (*rule.vertical, *rule.tag, *([rule.title] if rule.title else []))


def category_of(item_labels: Ragged, wanted: Mask) -> Mask:
    """By item: the wanted products, and all that carry the finest label of one of them."""
    sizes = np.bincount(item_labels.values, minlength=1)
    owner = owners(item_labels)
    order = np.lexsort((item_labels.values, sizes[item_labels.values], owner))
    firsts: Ints = np.unique(owner[order], return_index=True)[1]
    finest, item = item_labels.values[order][firsts], owner[order][firsts]
    chosen = np.zeros(len(sizes), dtype=bool)
    chosen[finest[wanted[item]]] = True
    category = wanted.copy()
    category[owner[chosen[item_labels.values]]] = True
    return category
