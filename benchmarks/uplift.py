"""A shop whose uplift is known: does the ranking by uplift find whom a contact makes buy?

    python -m benchmarks.uplift [--quick]

Purchases are those of the planted shop (docs/planted.md). On top of them, a campaign for one label: without a contact a
user buys by the chance that the window model gives; a contact helps those who bought such products once and have not
for some weeks, helps others a little, and annoys those who buy all the time. Half of the users are in a past campaign
with a random control, where each buys or does not by that chance. Of the other half, the best fifth is chosen: by
uplift learnt from the campaign, by the chance to buy, and by the known uplift, which nobody can beat.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import polars as pl

import merit
from benchmarks import harness
from merit.campaigns.audiences import uplift
from merit.campaigns.audiences.request import PastTest
from merit.core import config, console
from merit.core.errors import DataError
from merit.core.pipeline import run
from merit.core.seeds import stream
from merit.core.settings import RunConfig
from merit.data import planted
from merit.propensity.purchases import Mask, Reals
from merit.retrieval.model import Model

DAYS, SHARE = 90, 0.2


def shop(users: int, out: Path, seed: int) -> Model:
    """A quick model of the planted shop."""
    planted.write(planted.shop(planted.PlantedConfig(users=users), seed), out / "shop")
    source = {"kind": "tables"} | {name: str(out / f"shop/{name}.parquet") for name in ("interactions", "items")}
    values = {"preset": "quick", "seed": seed, "source": source, "out": str(out / "run"), "cache": str(out / "cache")}
    run(config.build(RunConfig, values))
    return merit.load(out / "run")


def chances(model: Model, wanted: Mask) -> tuple[Reals, Reals]:
    """(users,) twice: to buy without and with a contact, as planted."""
    known = model.windows.known(wanted, DAYS, 0)
    lapsed = (known["had"] > 0) & (known["had last"] > np.log1p(21))
    loyal = (known["had"] > 0) & ~lapsed
    return tuple(1 / (1 + np.exp(-known["log_odds"] - added)) for added in (0.0, 0.3 + 1.2 * lapsed - 0.6 * loyal))  # type: ignore[return-value]


def gained(added: Reals, scores: Reals, among: Mask) -> float:
    """The known uplift of the best fifth by some scores."""
    rows = np.flatnonzero(among)
    best = rows[np.argsort(-scores[rows], kind="stable")[: int(SHARE * len(rows))]]
    return float(added[best].sum())


def main() -> None:
    parser = harness.parser(__doc__)
    arguments = parser.parse_args()
    console.set_up_logging(quiet=True)
    with TemporaryDirectory() as temporary:
        out, random = Path(temporary), stream(arguments.seed, "uplift")
        model = shop(6_000 if arguments.quick else 20_000, out, arguments.seed)
        items = model.windows.item_labels
        wanted = np.zeros(len(items), dtype=bool)
        wanted[
            np.repeat(np.arange(len(items)), items.lengths())[items.values == np.bincount(items.values).argmax()]
        ] = True
        without, with_contact = chances(model, wanted)
        added, users = with_contact - without, len(model.users)
        past, treated = random.random(users) < 0.5, random.random(users) < 0.5
        bought = random.random(users) < np.where(treated, with_contact, without)
        arms = pl.Series(np.where(treated, "treatment", "control"))
        table = pl.DataFrame({"user_id": model.users["user_id"], "arm": arms, "outcome": bought.astype(int)})
        table.filter(pl.Series(past)).write_parquet(out / "test.parquet")
        test = PastTest(table=out / "test.parquet", start=model.windows.end)
        by_uplift = gained(added, uplift.of_users(model, test, wanted, DAYS), ~past)
        by_chance, known = gained(added, without, ~past), gained(added, added, ~past)
        table.head(90).write_parquet(out / "none.parquet")
        try:
            uplift.of_users(model, PastTest(table=out / "none.parquet", start=model.windows.end), wanted, DAYS)
            refused = False
        except DataError as error:
            refused = "cannot be learnt" in str(error)
    figures = {"best": round(known, 1), "by uplift": round(by_uplift, 1), "by chance to buy": round(by_chance, 1)}
    figures |= {"recovered": round(by_uplift / known, 3), "recovered_by_chance": round(by_chance / known, 3)}
    harness.finish("uplift", figures | {"says when it cannot": refused}, arguments.seed)


if __name__ == "__main__":
    harness.run(main)
