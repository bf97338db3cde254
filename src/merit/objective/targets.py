"""The self-correction objective as one pure function: no tensors, no tokenizer, no model.

The target of an example is a shuffled list of gold and mined labels. Mined labels stand in the prefix, so the model
reads mistakes like its own; but at every position where a label is chosen, only gold labels that are still missing
are right. The paper's Appendix A is the test of this function; where its Algorithm 1 says something else
(it completes a label at its last token and so loses "Sports Gear" while "Sports" is read), Appendix A wins: a label is
completed by its terminator.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

Label = tuple[int, ...]


def target_sequence(
    labels: Sequence[Label], gold: Collection[Label], sep: int, end: int
) -> tuple[list[int], list[set[int]]]:
    """The tokens of the target, and for each the set of tokens that would have been right in its place.

    `labels`: gold and mined labels in the order they are read, as token tuples, each once. `gold`: the gold ones; a
    gold label that is not among `labels` was cut for room, stays right throughout, and keeps END wrong.

    A mined label (1,) begins like the gold (1, 4), is turned towards it, and does not count as predicted:

    >>> tokens, valid = target_sequence([(1,), (2, 3), (1, 4)], {(1, 4), (2, 3)}, sep=8, end=9)
    >>> for token, right in zip(tokens, valid):
    ...     print(token, sorted(right))
    1 [1, 2]
    8 [4]
    2 [1, 2]
    3 [3]
    8 [8]
    1 [1]
    4 [4]
    9 [9]
    """
    _check(labels, gold, sep, end)
    tokens: list[int] = []
    valid: list[set[int]] = []
    open_ = set(gold)
    for place, label in enumerate(labels):
        terminator = end if place == len(labels) - 1 else sep
        for length, token in enumerate((*label, terminator)):
            tokens.append(token)
            valid.append(_valid(label[:length], label, open_, sep, end))
        open_.discard(label)
    return tokens, valid


def _valid(prefix: Label, label: Label, open_: set[Label], sep: int, end: int) -> set[int]:
    """What may follow `prefix`, read as the beginning of `label`, while the gold labels `open_` are missing."""
    if not prefix:  # a classification position
        return {gold[0] for gold in open_} or {end}
    matching = {gold for gold in open_ if gold[: len(prefix)] == prefix}
    if matching:  # gold comes first: a mined label that begins like a gold one is turned towards it
        right = {gold[len(prefix)] for gold in matching if len(gold) > len(prefix)}
        return right | ({sep if open_ - {prefix} else end} if prefix in matching else set())
    if prefix == label:  # a mined label is complete
        return {sep if open_ else end}
    return {label[len(prefix)]}  # label coherence: what was begun is spelt to its end


def _check(labels: Sequence[Label], gold: Collection[Label], sep: int, end: int) -> None:
    if not labels or not gold:
        raise ValueError("a target needs at least one label, and at least one gold label")
    if len(set(labels)) != len(labels):
        raise ValueError("a label occurs twice in a target; labels equal after tokenisation must be merged before")
    for label in (*labels, *gold):
        if not label or sep in label or end in label:
            raise ValueError(f"{label} is not a label: it is empty, or contains SEP or END")
