"""Users for an interest and interests for a user: the propensity model against what one would use instead.

    python -m benchmarks.propensity --data FOLDER [--tags brand] [--seeds 1 2 3] [--steps 600] [--out runs/propensity]

FOLDER holds interactions.parquet and items.parquet; without it, the Complete Journey data is used. Every seed trains
both generators and takes them through all stages; seeds of --sweep also try other k_g, and those of --withheld do all
of it once more without a tenth of the labels. Every step is an artifact: a stopped run goes on where it was, and with
the --out and settings of `benchmarks.objectives` its generators are used.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import torch

from benchmarks import harness
from benchmarks.objectives import DUELS, Judged, duels, kept, settings
from merit.baselines.als import als
from merit.baselines.linear import linear
from merit.baselines.world import Answer, make_world
from merit.core import console, provenance
from merit.core.artifacts import Artifact
from merit.core.pipeline import run
from merit.core.ragged import Ragged, owners
from merit.core.seeds import stream
from merit.core.settings import RunConfig
from merit.core.types import Floats, Ints
from merit.data.corpus import build_corpus, read_table
from merit.evaluation import calibration as reliability
from merit.evaluation import tables
from merit.evaluation.classification import measure
from merit.evaluation.evaluate import evaluate, read_predictions, show_results, training_popularity, truth_of_test_users
from merit.evaluation.predictions import Predictions, Truth
from merit.evaluation.ranking import MEAN, SHARES, Scores, hit_key
from merit.evaluation.trivial import BASELINES
from merit.generator.mining import mine
from merit.generator.model import GeneratorConfig, load_generator, settings_of
from merit.generator.predict import predict
from merit.generator.train import train_generator
from merit.generator.worker import DecodeJob
from merit.labels import space
from merit.labels.build import change_labels, load_vectors
from merit.labels.mentions import Mentions
from merit.labels.space import LabelSpace
from merit.propensity import unseen_labels
from merit.propensity.features import UserFeatures
from merit.propensity.linear import train_factors
from merit.propensity.states import StatesConfig, read_features, write_states
from merit.propensity.train import PropensityRun, TrainedScorer, load_scorer, train_propensity
from merit.propensity.unseen_labels import Catalogue
from merit.retrieval.ranking import NAME, history_share_scores, judge, likelihood_scores, propensity_scores, rank
from merit.retrieval.verticals import vertical_shares

KGS = (1, 3, 5, 7, 10)
WITHHELD = 0.1
PEER_SECONDS = 300.0
LIFT_AT = 0.05  # of the users: what an audience for a rare label may be


@dataclass(frozen=True)
class Chain:
    """All artifacts of one seed over one label space."""

    corpus: Artifact
    factors: Artifact
    generators: dict[str, Artifact]
    mined: dict[str, Artifact]
    states: dict[str, Artifact]
    propensity: dict[str, Artifact]


def chain(
    config: RunConfig, corpus: Artifact, labels: Artifact, folder: Path, seed: int, stages: tuple[str, ...]
) -> Chain:
    """Teacher forcing, its mistakes, self-correction, and a propensity model on the states of these stages."""
    shop = (corpus, labels)
    first = kept(folder / "teacher-forcing", "generator") or train_generator(
        *shop, folder / "teacher-forcing", config.generator(config.stage_1), seed
    )
    wrong = kept(folder / "mined", "mined") or mine(DecodeJob(first, *shop, config.mining, seed), folder / "mined")
    second = kept(folder / "self-correction-0", "generator") or train_generator(
        *shop, folder / "self-correction-0", config.generator(config.stage_2), seed, mined=wrong
    )
    still = kept(folder / "mined-2", "mined") or mine(DecodeJob(second, *shop, config.mining, seed), folder / "mined-2")
    generators, mined = {"1": first, "2": second}, {"1": wrong, "2": still}
    states = {
        name: kept(folder / f"states-{name}", "states")
        or write_states(DecodeJob(generators[name], *shop, config.states, seed), folder / f"states-{name}")
        for name in stages
    }
    factors = kept(folder / "factors", "factors") or train_factors(*shop, folder / "factors", config.factors, seed)
    fitted = {
        name: fitted_propensity(
            config.propensity, corpus, factors, states[name], mined[name], labels, folder / f"propensity-{name}", seed
        )
        for name in stages
    }
    console.tell(f"{folder}: done")
    return Chain(corpus, factors, generators, mined, states, fitted)


def fitted_propensity(
    config: PropensityRun,
    corpus: Artifact,
    factors: Artifact,
    states: Artifact,
    mined: Artifact,
    labels: Artifact,
    out: Path,
    seed: int,
) -> Artifact:
    return kept(out, "propensity") or train_propensity(corpus, factors, states, labels, out, config, seed, mined)


def user_rankings(
    made: Chain, corpus: Artifact, labels: Artifact, truth: Truth, peers: dict[str, Answer], seed: int
) -> Judged:
    """Every way to rank users for an interest, with one seed."""
    known = space.load(labels.path)
    shares, _ = vertical_shares(corpus, known)
    _, test = read_features(corpus, made.states["2"], "test")
    second, how = load_generator(made.generators["2"], corpus, labels), settings_of(made.generators["2"])
    methods: dict[str, Scores] = {
        "history frequency": history_share_scores(truth),
        **{name: answer.scores for name, answer in peers.items() if answer.scores},
        f"{how.train.name}, likelihood": likelihood_scores(second, test, training_popularity(known)),
    }
    for name, states in made.states.items():
        scorer = load_scorer(made.propensity[name], labels)
        features = read_features(corpus, states, "test")[1]
        trained = settings_of(made.generators[name]).train.name
        methods[f"{trained}, propensity"] = propensity_scores(scorer, features)
    return [judge(method, seed, score, truth, shares) for method, score in methods.items()]


def peers_of(corpus: Artifact, labels: Artifact, how: GeneratorConfig, seed: int) -> dict[str, Answer]:
    """With the settings that validation users like best."""
    world = make_world(corpus, labels, how.backbone, how.text, PEER_SECONDS)
    return {name: method(world, seed) for name, method in (("ALS", als), ("linear", linear))}


def sweep(config: RunConfig, made: Chain, corpus: Artifact, labels: Artifact, truth: Truth, seed: int) -> Judged:
    """The number of labels whose states make a user, all else equal."""
    shares, _ = vertical_shares(corpus, space.load(labels.path))
    folder = made.propensity["2"].path.parent
    states = kept(folder / "states-long", "states") or write_states(
        DecodeJob(made.generators["2"], corpus, labels, StatesConfig(labels=max(KGS)), seed), folder / "states-long"
    )
    test = read_features(corpus, states, "test")[1]
    found = []
    for k in KGS:
        model = config.propensity.model.model_copy(update={"labels": k})
        run_config = config.propensity.model_copy(update={"model": model})
        fitted = fitted_propensity(
            run_config, corpus, made.factors, states, made.mined["2"], labels, folder / f"propensity-k{k}", seed
        )
        scorer = load_scorer(fitted, labels)
        found.append(judge(f"k_g = {k}", seed, propensity_scores(scorer, test), truth, shares))
    return found


def interest_lists(
    config: RunConfig, made: Chain, corpus: Artifact, labels: Artifact, folder: Path, seed: int
) -> dict[str, Artifact]:
    """The generator's own order and the propensity model's, as predictions."""
    shop = (corpus, labels)
    place = folder / "self-correction-0-predictions"
    said = kept(place, "predictions") or predict(DecodeJob(made.generators["2"], *shop, config.predict, seed), place)
    ranked = kept(folder / "ranking", "predictions") or rank(
        made.propensity["2"], made.states["2"], made.generators["2"], *shop, folder / "ranking", config.ranking, seed
    )
    return {f"generator-{seed}": said, f"propensity-{seed}": ranked}


def lift_from_text_alone(
    config: RunConfig, full: Chain, examples: Artifact, labels: Artifact, truth: Truth, folder: Path, seed: int
) -> dict[str, float]:
    """Audiences for labels that nothing was trained on, and for the same labels when all was."""
    known = space.load(labels.path)
    lots = stream(seed, "withheld").random(len(known)) < WITHHELD
    hidden = np.flatnonzero(lots & known.live_mask())
    texts = [known.texts[label] for label in hidden.tolist()]
    without = kept(folder / "labels", "labels") or change_labels(
        labels, folder / "labels", "retire", texts, reason="withheld from training", cache=config.cache
    )
    corpus = kept(folder / "corpus", "corpus") or build_corpus(
        examples, without, folder / "corpus", config.tokens, config.seed
    )
    blind = chain(config, corpus, without, folder, seed, ("2",))
    truth = _of_users_in(truth, corpus)
    lifts = {"history frequency": _lift(history_share_scores(truth), truth, hidden)}
    for name, made in (("trained", full), ("label's text only", blind)):
        scorer = load_scorer(made.propensity["2"], labels)  # the whole label space, withheld labels live again
        features = _same_users(made, truth)
        lifts[name] = _lift(propensity_scores(scorer, features), truth, hidden)
    by_titles = unseen_scores(scorer, features, full.corpus, without, truth, known)
    lifts["text alone"] = _lift(by_titles, truth, hidden)
    pairs = int(np.isin(truth.gold.values, hidden).sum())
    return lifts | {"ratio": lifts["text alone"] / lifts["trained"], "labels": len(hidden), "pairs": pairs}


def unseen_scores(
    scorer: TrainedScorer, features: UserFeatures, corpus: Artifact, without: Artifact, truth: Truth, known: LabelSpace
) -> Scores:
    """As `merit.load` scores a label that training never saw: by its text, and by products whose titles name it."""
    items = pl.read_parquet(corpus.file("items.parquet"))
    sold = pl.read_parquet(corpus.file("item_counts.parquet"))["count"].to_numpy().astype(np.float64)
    labels_then = Ragged(*space.item_labels(space.load(without.path), items))
    catalogue = Catalogue(Mentions.of(items["title"]), labels_then, sold)
    bought = _items_of(corpus, truth)
    users, totals = (
        scorer.users(features),
        np.maximum(np.bincount(owners(features.history), features.times, len(features)), 1),
    )
    model, width = scorer.model, scorer.texts.shape[1]
    with torch.inference_mode():
        numbers = model.labels(torch.from_numpy(scorer.texts), torch.arange(len(known)))[:, width:].numpy()

    def score(labels: Ints) -> Floats:
        named = [catalogue.naming(known.texts[label]) for label in labels.tolist()]
        found = [catalogue.labels_of(each) for each in named]
        own = np.stack([unseen_labels.mean_factors(weights, numbers[which]) for which, weights in found])
        vectors = torch.from_numpy(np.concatenate([scorer.texts[labels], own], axis=1))
        said = unseen_labels.count_mentions(bought, named, len(items))
        times = np.zeros((len(users), len(labels)), np.float32)
        times[said.users, said.labels] = said.times
        shares = (np.maximum(times, 1) / totals[:, None]).astype(np.float32)
        with torch.inference_mode():
            again = model.repeat_score(torch.from_numpy(times), torch.from_numpy(shares), torch.zeros(len(labels)))
            grid: Floats = (model.pair_score(users[:, None], model.label_projections(vectors)) + again).numpy()
        return grid

    return score


def _items_of(corpus: Artifact, truth: Truth) -> Ragged:
    """The items of the truth's test users."""
    rows = dict(read_table(corpus, "test", "user_id", "items").iter_rows())
    return Ragged.of([rows[truth.user_ids[user]] for user in truth.user.tolist()])


def _of_users_in(truth: Truth, corpus: Artifact) -> Truth:
    """Without users whose every gold label is withheld: a chain that cannot see those labels has no such example."""
    there = set(read_table(corpus, "test", "user_id")["user_id"])
    rows = np.flatnonzero([truth.user_ids[user] in there for user in truth.user.tolist()])
    counts, purchases = (Ragged(truth.history.offsets, each).take(rows)[0] for each in (truth.counts, truth.purchases))
    lists = {"gold": truth.gold.gather(rows), "history": truth.history.gather(rows)}
    return replace(truth, **lists, counts=counts, purchases=purchases, user=truth.user[rows])


def _same_users(made: Chain, truth: Truth) -> UserFeatures:
    """The features of the truth's test users."""
    people, found = read_features(made.corpus, made.states["2"], "test")
    names = [truth.user_ids[user] for user in truth.user.tolist()]
    rows = pl.DataFrame({"user_id": names}).join(people.with_row_index("row"), on="user_id", maintain_order="left")
    return found.gather(rows["row"].to_numpy())


def _lift(score: Scores, truth: Truth, labels: np.ndarray[Any, Any]) -> float:
    """How many times more often the first 5 % of users wanted a label than all users, over pairs of these labels."""
    k = max(1, int(LIFT_AT * len(truth)))
    owner = np.repeat(np.arange(len(truth)), truth.gold.lengths())
    found = wanted = 0
    for label in labels.tolist():
        positive = owner[truth.gold.values == label]
        if len(positive):
            first = np.argsort(-score(np.array([label]))[:, 0], kind="stable")[:k]
            found, wanted = found + len(np.intersect1d(first, positive)), wanted + len(positive)
    return found / max(1, wanted) / (k / len(truth))


def main() -> None:
    parser = harness.parser(__doc__)
    parser.add_argument("--tags", nargs="*", default=[])
    parser.add_argument("--seeds", nargs="*", type=int, default=[1, 2, 3])
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--out", type=Path, default=Path("runs/propensity"))
    parser.add_argument("--stages", nargs="*", default=["1", "2"], help="whose states: 2 is self-correction's alone")
    parser.add_argument("--sweep", nargs="*", type=int, default=[], help="seeds for which k_g is varied")
    parser.add_argument("--withheld", nargs="*", type=int, default=[], help="seeds to train without some labels")
    parser.add_argument("--set", action="append", default=[], help="override a setting")
    arguments = parser.parse_args()
    console.set_up_logging()
    seeds, steps = ([1], 20) if arguments.quick else (arguments.seeds, arguments.steps)
    config = settings(arguments.data, arguments.tags, steps, arguments.out, arguments.set)
    made = dict(run(config, until="corpus"))
    shop = (made["corpus"], made["labels"])
    truth = truth_of_test_users(made["corpus"], space.load(made["labels"].path), load_vectors(made["labels"]))
    ranked: Judged = []
    swept: Judged = []
    others: list[Predictions] = []
    lists: dict[str, Artifact] = {}
    told: dict[str, Any] = {}
    promised: dict[int, pl.DataFrame] = {}
    for seed in seeds:
        folder = arguments.out / f"seed-{seed}"
        full = chain(config, *shop, folder, seed, tuple(arguments.stages))
        peers = peers_of(*shop, config.generator(config.stage_2), seed)
        others += [answer.predictions(name, seed) for name, answer in peers.items()]
        ranked += user_rankings(full, *shop, truth, peers, seed)
        swept += sweep(config, full, *shop, truth, seed) if seed in arguments.sweep else []
        lists |= interest_lists(config, full, *shop, folder, seed)
        promised[seed] = pl.read_parquet(full.propensity["2"].file("reliability.parquet"))
        found = reliability.summary(promised[seed])
        told |= {f"ece seed {seed}": found.ece, f"ece of 1 % and more seed {seed}": found.ece_likely}
        if seed in arguments.withheld:
            lifts = lift_from_text_alone(
                config, full, made["examples"], made["labels"], truth, folder / "withheld", seed
            )
            told |= {f"lift {name} seed {seed}": round(value, 3) for name, value in lifts.items()}
    show("Users for an interest, in points", ranked, truth, "history frequency")
    tell("Users for an interest: the propensity model minus each of the others", beaten(ranked, truth.users, COLUMNS))
    for share in SHARES:
        tell(f"By vertical, the first {share:.0%} of users", by_vertical(ranked, truth, share))
    tell("Calibration on test users, in points", calibration(promised))
    if swept:
        show("k_g", swept, truth, f"k_g = {KGS[0]}")
    results = evaluate(*shop, arguments.out / "results", config.evaluation, 7, **lists)
    show_results(results)
    said = [each for artifact in lists.values() for each in read_predictions(artifact)]
    popularity = training_popularity(space.load(shop[1].path))
    said += [*others, *(make(truth, popularity) for make in BASELINES.values())]
    judged = [(each, measure(each, truth, config.evaluation)) for each in said]
    tell("Interests for a user: the propensity model minus each of the others", beaten(judged, truth.users, DUELS))
    print(json.dumps(told | figures(ranked, truth) | {"commit": provenance.commit()}))


COLUMNS: tables.Columns = {
    **{f"{share:.0%}": hit_key(share, MEAN) for share in SHARES},
    **{f"labels {share:.0%}": hit_key(share) for share in (0.01, 0.05)},
}


def beaten(judged: Judged, users: int, columns: tables.Columns) -> pl.DataFrame:
    """The propensity model on the states of self-correction minus each of the others."""
    ours = next(said.method for said, _ in judged if said.method.startswith("self") and said.method.endswith(NAME))
    return duels(ours, judged, users, columns)


def by_vertical(judged: Judged, truth: Truth, share: float) -> pl.DataFrame:
    """Hit@k, a row per vertical and a column per method."""
    found = tables.compare(judged, truth.users, 7, "history frequency")
    columns = {name: hit_key(share, name) for name in truth.verticals}
    table = tables.headline(found, columns, ()).drop("users", "seeds", "commit", "command")
    return table.drop("method").transpose(include_header=True, header_name="vertical", column_names=table["method"])


def calibration(promised: dict[int, pl.DataFrame]) -> pl.DataFrame:
    """By vertical and overall, the mean over seeds."""
    found = pl.concat(
        reliability.by_vertical(table.vstack(table.with_columns(vertical=pl.lit("all")))) for table in promised.values()
    )
    named = {"ece": "ECE", "ece_likely": "ECE of 1 % and more", "brier": "Brier", "prevalence": "prevalence"}
    means = found.group_by("vertical", maintain_order=True).agg(
        *(pl.col(key).mean().mul(100).round(3).alias(name) for key, name in named.items()), pl.col("pairs").first()
    )
    return means.sort(pl.col("vertical") == "all", descending=True, maintain_order=True)


def show(title: str, judged: Judged, truth: Truth, against: str) -> None:
    found = tables.compare(judged, truth.users, 7, against)
    table = tables.headline(found, COLUMNS, tuple(COLUMNS)).drop("commit", "command")
    tell(f"{title}; Δ against {against}", table, tables.leaders(found, COLUMNS))


def tell(title: str, table: pl.DataFrame, bold: dict[str, str] | None = None) -> None:
    print(f"\n## {title}\n\n{tables.markdown(table, bold)}", flush=True)


def figures(judged: Judged, truth: Truth) -> dict[str, float]:
    found = tables.compare(judged, truth.users, 7, "history frequency")
    return {
        f"{method} {name}": round(100 * value, 1)
        for name, key in COLUMNS.items()
        for method, value in tables.pick(found, key).select("method", "value").iter_rows()
    }


if __name__ == "__main__":
    harness.run(main)
