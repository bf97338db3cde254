"""labels: the tags of the items → a label space with vectors and clusters; and its later versions.

The artifact: labels.parquet, aliases.parquet, changes.json (the space), vectors.safetensors (row = label id),
clusters.parquet, merged.parquet (texts that are no label of their own, and why), blocked.parquet (labels the policy
keeps back, and why), review.parquet (those it nearly keeps back), policy.toml (the policy as it was applied).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import polars as pl
from pydantic import Field, model_validator
from safetensors.numpy import load_file, save

from merit.core import artifacts, console, seeds
from merit.core.artifacts import Artifact, Draft
from merit.core.config import Frozen
from merit.core.errors import DataError
from merit.core.types import Floats, Ints, LabelEncoder
from merit.labels import changes, clusters, encoders, policy, space
from merit.labels.policy import BlockReason
from merit.labels.space import LabelSpace
from merit.privacy import audit

Action = Literal["add", "retire", "rename", "block"]
PER_CLUSTER = 10  # the paper: 291k labels in 30k clusters
BLOCKED = {
    "label": pl.UInt32,
    "text": pl.String,
    "category": pl.String,
    "matched": pl.String,
    "similarity": pl.Float64,  # null where a word was found, or a person decided
}
CLUSTERS = pl.Schema({"cluster": pl.Int32(), "size": pl.UInt32(), "medoid": pl.UInt32(), "name": pl.String()})
NO_POLICY = "# No policy was applied; changes.json says why.\n[category]\n"


class LabelsConfig(Frozen):
    """How tags become labels; later versions of a space keep the settings of its first."""

    encoder: str = "minilm"
    """`minilm`, the same without torch (`minilm-numpy`), `hashed`, or the folder of a sentence-transformer."""
    clusters: int | None = Field(None, ge=1)
    """By default one for every ten live labels."""
    max_ratio: float = Field(4.0, ge=1)
    """Largest cluster ≤ this × the mean: a huge cluster would make its first token say nothing."""
    policy: str = "default"
    """The sensitive-interest policy: `default`, a file, or `none`, which needs a `policy_reason`."""
    policy_reason: str = ""
    min_count: int = Field(0, ge=0)
    """Labels seen less often by training users are left out. By default none: a label is scored from its text alone."""

    @model_validator(mode="after")
    def _explained(self) -> Self:
        if self.policy == "none" and len(self.policy_reason.strip()) < 10:
            raise ValueError("policy = 'none' needs a policy_reason of at least 10 characters; it is logged")
        return self


def build_labels(examples: Artifact, out: Path, config: LabelsConfig, seed: int, cache: Path) -> Artifact:
    """The first version of the label space of these examples."""
    rules = policy_text(config)
    encoder = encoders.Cached(encoders.make(config.encoder), cache)
    items = pl.read_parquet(examples.file("items.parquet"))
    counts = pl.read_parquet(examples.file("item_counts.parquet"))
    parents, inputs = {"examples": examples}, labels_inputs(config)
    with artifacts.writing(out, "labels", config=config, seed=seed, parents=parents, inputs=inputs) as draft:
        labels, merged = space.build(label_tags(items, counts), encoder.same, config.min_count)
        _require(len(labels), f"None of the {merged.height:,} tag texts became a label", config)
        vectors = encoder.encode(labels.texts)
        (draft.path / "policy.toml").write_text(rules, encoding="utf-8")
        if config.policy == "none":
            console.warn(
                f"No sensitive-interest policy is applied: {config.policy_reason}", reason=config.policy_reason
            )
            labels = changes.logged(labels, "no policy", [], config.policy_reason)
        labels, blocked = _apply_policy(labels, np.arange(len(labels)), draft.path / "policy.toml", encoder, vectors)
        _require(int(labels.live_mask().sum()), "The policy blocks every label", config)
        labels, groups, quality = _cluster(labels, vectors, config, seed)
        review = _review(labels, draft.path / "policy.toml", encoder, vectors)
        _write(draft, labels, vectors, groups, merged, blocked, review)
        offsets, _ = space.item_labels(labels, items)
        draft.summary |= quality
        draft.summary["items_without_labels"] = int((np.diff(offsets) == 0).sum())
    _log_overrides(out, labels, 0)
    return artifacts.load(out, "labels")


def change_labels(
    labels: Artifact,
    out: Path,
    action: Action,
    texts: Sequence[str],
    *,
    reason: str,
    cache: Path,
    verticals: Sequence[str] | None = None,
    to: str | None = None,
) -> Artifact:
    """The next version of a label space in a folder of its own. Untouched labels keep id, text and vector bit for bit.

    `verticals` go with `add` (one per text), `to` with `rename` (of one text).
    """
    if out.resolve() == labels.path.resolve():
        raise DataError(f"{out} holds the version that is to be changed. Choose another folder with --out.")
    config = LabelsConfig.model_validate(labels.manifest.config)
    encoder = encoders.Cached(encoders.make(config.encoder), cache)
    old, vectors = space.load(labels.path), load_vectors(labels)
    skipped = pl.DataFrame(schema=space.MERGED)
    if action == "add":
        new, skipped = changes.add(old, texts, verticals or [""] * len(texts), encoder.same, reason)
    elif action == "rename":
        if to is None or len(texts) != 1:
            raise DataError(
                "A rename takes one label and its new name. Give both: `merit labels rename SPACE tents shelters`."
            )
        new = changes.rename(old, texts[0], to, encoder.same, reason)
    else:
        new = changes.set_status(old, texts, "retired" if action == "retire" else "blocked", reason)
    touched = np.array(new.changes[-1].labels, dtype=np.int64)
    if action in ("add", "rename"):
        vectors = _encode_changed(old, new, vectors, encoder)
        new, blocked = _apply_policy(new, touched, labels.file("policy.toml"), encoder, vectors)
        new = _join_clusters(new, vectors)
    else:
        by_hand = BlockReason("by hand", reason, None)
        blocked = _blocked(new, [(number, by_hand) for number in touched.tolist() if action == "block"])
    groups = _renamed(new, vectors, pl.read_parquet(labels.file("clusters.parquet")))
    merged = pl.concat([pl.read_parquet(labels.file("merged.parquet")), skipped])
    blocked = pl.concat([pl.read_parquet(labels.file("blocked.parquet")), blocked])
    blocked = blocked.unique("label", keep="first").sort("label")
    seed, parents = labels.manifest.seed, {"labels": labels}
    with artifacts.writing(out, "labels", config=config, seed=seed, parents=parents) as draft:
        (draft.path / "policy.toml").write_bytes(labels.file("policy.toml").read_bytes())
        review = _review(new, draft.path / "policy.toml", encoder, vectors)
        _write(draft, new, vectors, groups, merged, blocked, review)
        draft.summary |= {"encoded": encoder.misses, "newly_blocked": int(np.isin(touched, blocked["label"]).sum())}
    _log_overrides(out, new, len(old.changes))
    return artifacts.load(out, "labels")


@artifacts.opens
def load_vectors(labels: Artifact) -> Floats:
    """(n, d) float32, row = label id."""
    return np.asarray(load_file(labels.file("vectors.safetensors"))["vectors"], np.float32)


def labels_inputs(config: LabelsConfig) -> dict[str, Any]:
    """What the stage reads besides its parents: a policy of one's own. The default policy belongs to the version."""
    if config.policy in ("default", "none"):
        return {}
    return {"policy": sha256(policy_text(config).encode()).hexdigest()}


def policy_text(config: LabelsConfig) -> str:
    """TOML as the artifact keeps it; a file of one's own is checked before."""
    if config.policy == "none":
        return NO_POLICY
    path = policy.DEFAULT if config.policy == "default" else Path(config.policy)
    policy.load(path)  # its mistakes are reported under the given name
    return path.read_text(encoding="utf-8")


def label_tags(items: pl.DataFrame, counts: pl.DataFrame) -> pl.DataFrame:
    """(text, count, vertical), one row per item and tag. An item that spells a tag in two ways counts once."""
    rows = items.select("item", "vertical", text="tags").explode("text").drop_nulls("text")
    rows = rows.join(space.named(rows["text"]).select("text", "key"), on="text", maintain_order="left")
    rows = rows.join(counts, on="item", how="left", maintain_order="left")
    count = pl.when(pl.struct("item", "key").is_first_distinct()).then(pl.col("count").fill_null(0)).otherwise(0)
    return rows.select("text", "vertical", count=count)


# --- the policy ------------------------------------------------------------------------------------------------------


def _log_overrides(out: Path, labels: LabelSpace, before: int) -> None:
    """Write overrides to the audit log beside the space, too: it is there even if the space is not any more."""
    for change in labels.changes[before:]:
        if change.action in ("override", "no policy"):
            texts = labels.table["text"].gather(change.labels).to_list()
            audit.append(out.parent, "override", action=change.action, labels=texts, reason=change.reason)


def _apply_policy(
    labels: LabelSpace, ids: Ints, rules: Path, encoder: LabelEncoder, vectors: Floats
) -> tuple[LabelSpace, pl.DataFrame]:
    """Block those of the labels that the policy names, and log those it lets through by an override."""
    texts, law = labels.table["text"].gather(ids).to_list(), policy.load(rules)
    reasons = policy.judge(texts, vectors[ids], policy.anchor(law, encoder))
    for at, reason in policy.overridden(texts, law).items():
        labels = changes.logged(labels, "override", [int(ids[at])], reason)
    for idle in [override.label for override in law.override if labels.find([override.label])[0] < 0]:
        console.warn(f"The policy overrides '{idle}', but there is no such label.", label=idle)
    blocked = [(int(number), why) for number, why in zip(ids, reasons, strict=True) if why]
    if blocked:
        numbers = [number for number, _ in blocked]
        labels = changes.set_status(labels, numbers, "blocked", "sensitive-interest policy, see blocked.parquet")
    return labels, _blocked(labels, blocked)


def _review(labels: LabelSpace, rules: Path, encoder: LabelEncoder, vectors: Floats) -> pl.DataFrame:
    """The live labels that the policy nearly blocks."""
    live, law = np.flatnonzero(labels.live_mask()), policy.load(rules)
    texts = labels.table["text"].gather(live).to_list()
    reasons = policy.borderline(texts, vectors[live], policy.anchor(law, encoder))
    excused = policy.overridden(labels.texts, law)
    rows = [(at, why) for at, why in zip(live.tolist(), reasons, strict=True) if why and at not in excused]
    if rows:
        fact = (
            f"{len(rows):,} live labels are near what the policy blocks. Look through review.parquet of the label space"
        )
        console.warn(f"{fact}: `merit labels block` takes one out.", labels=len(rows))
    return _blocked(labels, rows)


def _blocked(labels: LabelSpace, blocked: Sequence[tuple[int, BlockReason]]) -> pl.DataFrame:
    texts = labels.table["text"]
    rows = [(number, texts[number], why.category, why.matched, why.similarity) for number, why in blocked]
    return pl.DataFrame(rows, schema=BLOCKED, orient="row")


# --- clusters --------------------------------------------------------------------------------------------------------


def _cluster(
    labels: LabelSpace, vectors: Floats, config: LabelsConfig, seed: int
) -> tuple[LabelSpace, pl.DataFrame, dict[str, float]]:
    """Cluster the live labels. A blocked one gets no cluster: its name could become the name of the cluster."""
    live = np.flatnonzero(labels.live_mask())
    k = config.clusters or max(1, len(live) // PER_CLUSTER)
    numbers = clusters.cluster(vectors[live], k, seeds.stream(seed, "labels", "clusters"), config.max_ratio)
    assignment = np.full(len(labels), -1, dtype=np.int32)
    assignment[live] = numbers
    labels = changes.with_clusters(labels, assignment)
    medoids = live[clusters.medoids(vectors[live], numbers, k)]
    within, random = clusters.quality(vectors[live], numbers)
    cosines = {"within_cosine": round(within, 4), "random_cosine": round(random, 4)}
    return labels, _named_clusters(labels, medoids), cosines


def _named_clusters(labels: LabelSpace, medoids: Ints) -> pl.DataFrame:
    """A row per cluster; medoid -1 (no live member is left) has no name."""
    members = labels.table.filter(pl.col("status") == "live", pl.col("cluster") >= 0)["cluster"].to_numpy()
    named = pl.DataFrame({"cluster": np.arange(len(medoids)), "medoid": medoids})
    named = named.with_columns(size=pl.Series(np.bincount(members, minlength=len(medoids))))
    names = labels.table.select(pl.col("id").cast(pl.Int64), name="text")
    named = named.join(names, left_on="medoid", right_on="id", how="left", maintain_order="left")
    return named.select("cluster", "size", pl.when(pl.col("medoid") >= 0).then("medoid"), "name").cast(CLUSTERS)


def _join_clusters(labels: LabelSpace, vectors: Floats) -> LabelSpace:
    """Live labels without a cluster go to the one whose mean is nearest. No other label moves."""
    assignment = labels.table["cluster"].to_numpy().copy()
    live = labels.live_mask()
    homeless, settled = np.flatnonzero(live & (assignment < 0)), np.flatnonzero(live & (assignment >= 0))
    if len(homeless):
        means = np.zeros((int(assignment.max()) + 1, vectors.shape[1]), dtype=np.float32)
        np.add.at(means, assignment[settled], vectors[settled])
        means /= np.maximum(np.linalg.norm(means, axis=1, keepdims=True), 1e-12)
        assignment[homeless] = (vectors[homeless] @ means.T).argmax(1)
    return changes.with_clusters(labels, assignment)


def _renamed(labels: LabelSpace, vectors: Floats, groups: pl.DataFrame) -> pl.DataFrame:
    """Clusters keep their names, for names are part of the token paths; only a blocked label gives up its cluster's."""
    medoids = groups["medoid"].cast(pl.Int64).fill_null(-1).to_numpy().copy()
    status, assignment = labels.table["status"].to_numpy(), labels.table["cluster"].to_numpy()
    for at in np.flatnonzero((medoids < 0) | (status[medoids] == "blocked")):
        members = np.flatnonzero(labels.live_mask() & (assignment == at))
        nearness = vectors[members] @ vectors[members].sum(0)
        medoids[at] = members[nearness.argmax()] if len(members) else -1
    newer = _named_clusters(labels, medoids)
    same = newer["medoid"].eq_missing(groups["medoid"])
    return newer.with_columns(name=pl.when(same).then(groups["name"]).otherwise("name"))


# --- the next version ------------------------------------------------------------------------------------------------


def _encode_changed(old: LabelSpace, new: LabelSpace, vectors: Floats, encoder: LabelEncoder) -> Floats:
    """The old vectors with rows for the labels whose text is new."""
    before = pl.Series([*old.texts, *[None] * (len(new) - len(old))], dtype=pl.String)
    changed = np.flatnonzero(new.table["text"].ne_missing(before).to_numpy())
    grown = np.concatenate([vectors, np.empty((len(new) - len(old), vectors.shape[1]), np.float32)])
    grown[changed] = encoder.encode(new.table["text"].gather(changed).to_list())
    return grown


def _write(
    draft: Draft,
    labels: LabelSpace,
    vectors: Floats,
    groups: pl.DataFrame,
    merged: pl.DataFrame,
    blocked: pl.DataFrame,
    review: pl.DataFrame,
) -> None:
    space.save(labels, draft.path)
    (draft.path / "vectors.safetensors").write_bytes(save({"vectors": np.ascontiguousarray(vectors)}))
    for name, table in (("clusters", groups), ("merged", merged), ("blocked", blocked), ("review", review)):
        table.write_parquet(draft.path / f"{name}.parquet")
    draft.summary |= {
        "version": labels.version,
        "labels": len(labels),
        "live": int(labels.live_mask().sum()),
        "merged": merged.height,
        "blocked": blocked.height,
        "to_review": review.height,
        "blocked_by_category": dict(sorted(Counter(blocked["category"].to_list()).items())),
        "clusters": groups.height,
        "largest_cluster": int(groups["size"].to_numpy().max()),
        "mean_cluster": round(float(groups["size"].to_numpy().mean()), 2),
    }


def _require(count: int, fact: str, config: LabelsConfig) -> None:
    if not count:
        raise DataError(
            f"{fact} (min_count {config.min_count}, policy '{config.policy}'). Check the tags column with "
            "`merit data check`, lower labels.min_count, or see docs/policy.md."
        )
