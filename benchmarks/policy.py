"""The sensitive-interest policy on hundreds of interests: which pass that should not, and which are wrongly blocked.

Every text of policy_probe.toml, policy_evasion.toml and policy_latest.toml is in one of two halves, by a hash of it.
The open half may be looked at while the policy is changed, and its mistakes are listed; of the held-out half, and of
policy_fresh.toml and policy_later.toml, which were written after a change, only counts are printed: by category or
kind of evasion. With --open, nothing of held-out texts is judged at all.

    python -m benchmarks.policy [--data MY-POLICY.toml] [--open]
"""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks import harness
from merit.core.console import show_table
from merit.core.seeds import stable_hash
from merit.core.types import LabelEncoder
from merit.labels import encoders, policy
from merit.labels.names import normalise
from merit.labels.policy import Policy

FILES = (Path(__file__).with_name(f"policy_{name}.toml") for name in ("probe", "fresh", "evasion", "later", "latest"))
PROBE, AFTERWARDS, EVASION, LATER, LATEST = FILES
OPEN, HELD_OUT, FRESH = "open", "held out", "fresh"
EVASIONS, NEWEST = "evasions, ", "latest, "
PARTS = (
    *(OPEN, HELD_OUT, FRESH, EVASIONS + OPEN, EVASIONS + HELD_OUT, EVASIONS + FRESH),
    *(NEWEST + OPEN, NEWEST + HELD_OUT),
)
KINDS = ("sensitive", "harmless")


@dataclass(frozen=True)
class Judged:
    category: str  # or kind of evasion
    kind: str
    text: str
    part: str
    blocked: bool

    @property
    def wrong(self) -> bool:
        return self.blocked != (self.kind == "sensitive")


def half_of(text: str) -> str:
    """The rule: an odd hash of the tidied text is held out."""
    return HELD_OUT if int(stable_hash([normalise(text)], "policy probe")[0]) % 2 else OPEN


def asked() -> list[tuple[str, str, str, str]]:
    """Category, or kind of evasion; kind; text, the first time it stands in a file; part."""
    paths = (PROBE, AFTERWARDS, EVASION, LATER, LATEST)
    files = {path: tomllib.loads(path.read_text(encoding="utf-8")) for path in paths}
    texts = [
        (name, kind, text, half_of(text) if path == PROBE else FRESH)
        for path in (PROBE, AFTERWARDS)
        for name, each in files[path].items()
        for kind in KINDS
        for text in each[kind]
    ]
    texts += [
        (name, kind, text, prefix + (FRESH if path == LATER else half_of(text)))
        for path, prefix in ((EVASION, EVASIONS), (LATER, EVASIONS), (LATEST, NEWEST))
        for kind in KINDS
        for name, each in files[path][kind].items()
        for text in each
    ]
    return list({normalise(each[2]): each for each in reversed(texts)}.values())[::-1]


def written(rules: Policy) -> set[str]:
    own = (
        text
        for each in rules.category.values()
        for text in (*each.terms, *each.exact, *each.phrases, *each.sayings, *each.allow)
    )
    return {normalise(text) for text in (*own, *rules.allow)}


def judged(rules: Policy, encoder: LabelEncoder, parts: Sequence[str] = PARTS) -> list[Judged]:
    """Texts that stand word for word in the policy show nothing, and are counted in the open half only."""
    known = written(rules)
    texts = [
        each for each in asked() if each[3] in parts and (each[3].endswith(OPEN) or normalise(each[2]) not in known)
    ]
    phrases = [text for _, _, text, _ in texts]
    found = policy.judge(phrases, encoder.encode(phrases), policy.anchor(rules, encoder))
    return [Judged(*each, verdict is not None) for each, verdict in zip(texts, found, strict=True)]


def wilson(wrong: int, texts: int, z: float = 1.96) -> tuple[float, float]:
    """The 95 % interval of a share: sound for few texts and for none that are wrong."""
    if not texts:
        return 0.0, 1.0
    share, spread = wrong / texts, z * z / texts
    middle, reach = share + spread / 2, z * (share * (1 - share) / texts + spread / texts / 4) ** 0.5
    return max(0.0, (middle - reach) / (1 + spread)), min(1.0, (middle + reach) / (1 + spread))


def line(rows: Sequence[Judged]) -> str:
    """3 of 20, 15 % (5–36)."""
    wrong = sum(each.wrong for each in rows)
    low, high = wilson(wrong, len(rows))
    return f"{wrong} of {len(rows)}, {wrong / max(1, len(rows)):.0%} ({100 * low:.0f}–{100 * high:.0f})"


def show(found: Sequence[Judged]) -> None:
    for part in dict.fromkeys(each.part for each in found):
        own = [each for each in found if each.part == part]
        names = dict.fromkeys(each.category for each in own)
        groups = {name: [each for each in own if each.category == name] for name in names} | {"all": own}
        rows = [
            [name, *(line([each for each in group if each.kind == kind]) for kind in KINDS)]
            for name, group in groups.items()
        ]
        show_table(
            f"{part}: wrong of texts, with 95 % intervals", ["category", "sensitive, pass", "harmless, blocked"], rows
        )
    mistakes = [(each.category, each.kind, each.text) for each in found if each.wrong and each.part.endswith(OPEN)]
    show_table("Mistakes of the open halves", ["category", "kind", "text"], mistakes)


def main() -> None:
    parser = harness.parser(__doc__)
    parser.add_argument("--open", action="store_true", help="judge the open halves alone")
    given = parser.parse_args()
    parts = [part for part in PARTS if part.endswith(OPEN) or not given.open]
    found = judged(policy.load(Path(given.data or policy.DEFAULT)), encoders.make("minilm"), parts)
    show(found)
    figures = {}
    for part in parts:
        for kind in KINDS:
            own = [each for each in found if (each.part, each.kind) == (part, kind)]
            name = f"{part.replace(', ', '_').replace(' ', '_')}_{kind}"
            figures |= {f"{name}_texts": len(own), f"{name}_wrong": sum(each.wrong for each in own)}
    harness.finish("policy", figures, given.seed)


if __name__ == "__main__":
    harness.run(main)
