"""Appendix A of the paper, position by position; the cases it leaves out; and a brute-force twin."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from merit.objective.targets import Label, target_sequence

WORDS = ["[SEP]", "[END]", "Home", "Decor", "Sports", "Milk", "Cricket", "Fan", "Enthusiast", "Mobile", "Phone", "Gear"]
ID = {word: number for number, word in enumerate(WORDS)}
SEP, END = ID["[SEP]"], ID["[END]"]


def label(text: str) -> Label:
    return tuple(ID[word] for word in text.split())


def read(texts: list[str], gold: list[str]) -> list[tuple[str, set[str]]]:
    tokens, valid = target_sequence([label(text) for text in texts], {label(text) for text in gold}, SEP, END)
    return [(WORDS[token], {WORDS[word] for word in right}) for token, right in zip(tokens, valid, strict=True)]


APPENDIX_A = [
    ("Home", {"Sports", "Cricket"}),
    ("Decor", {"Decor"}),
    ("[SEP]", {"[SEP]"}),
    ("Sports", {"Sports", "Cricket"}),
    ("[SEP]", {"[SEP]", "Enthusiast", "Gear"}),
    ("Milk", {"Sports", "Cricket"}),
    ("[SEP]", {"[SEP]"}),
    ("Cricket", {"Sports", "Cricket"}),
    ("Fan", {"Fan"}),
    ("[SEP]", {"[SEP]"}),
    ("Sports", {"Sports"}),
    ("Enthusiast", {"Enthusiast", "Gear"}),
    ("[SEP]", {"[SEP]"}),
    ("Mobile", {"Sports"}),
    ("Phone", {"Phone"}),
    ("[SEP]", {"[SEP]"}),
    ("Sports", {"Sports"}),
    ("Gear", {"Gear"}),
    ("[END]", {"[END]"}),
]


def test_appendix_a_all_19_positions() -> None:
    order = ["Home Decor", "Sports", "Milk", "Cricket Fan", "Sports Enthusiast", "Mobile Phone", "Sports Gear"]
    assert read(order, ["Sports", "Sports Enthusiast", "Cricket Fan", "Sports Gear"]) == APPENDIX_A


def test_a_mined_label_that_extends_a_gold_one() -> None:
    found = read(["Sports Gear", "Sports"], ["Sports"])
    # Inside the mined label, stopping at "Sports" would have been right, and would have been the end.
    assert found[1] == ("Gear", {"[END]"})
    assert found[2] == ("[SEP]", {"[SEP]"})
    assert found[3:] == [("Sports", {"Sports"}), ("[END]", {"[END]"})]


def test_a_gold_label_that_extends_a_mined_one() -> None:
    found = read(["Sports", "Sports Gear"], ["Sports Gear"])
    assert found[1] == ("[SEP]", {"Gear"})
    assert found[2:] == [("Sports", {"Sports"}), ("Gear", {"Gear"}), ("[END]", {"[END]"})]


def test_a_mined_label_with_the_first_token_of_an_open_gold_one() -> None:
    found = read(["Sports Fan", "Sports Gear"], ["Sports Gear"])
    assert found[:3] == [("Sports", {"Sports"}), ("Fan", {"Gear"}), ("[SEP]", {"[SEP]"})]


def test_mined_labels_after_the_last_gold_one() -> None:
    found = read(["Sports", "Milk", "Home Decor"], ["Sports"])
    assert found == [
        ("Sports", {"Sports"}),
        ("[SEP]", {"[END]"}),
        ("Milk", {"[END]"}),
        ("[SEP]", {"[END]"}),
        ("Home", {"[END]"}),
        ("Decor", {"Decor"}),
        ("[END]", {"[END]"}),
    ]


def test_a_single_label() -> None:
    assert read(["Milk"], ["Milk"]) == [("Milk", {"Milk"}), ("[END]", {"[END]"})]


def test_end_is_never_right_when_a_gold_label_was_cut() -> None:
    found = read(["Milk", "Home Decor"], ["Milk", "Sports"])
    assert not any("[END]" in right for _, right in found)
    assert found[2] == ("Home", {"Sports"})


@pytest.mark.parametrize(
    ("labels", "gold"),
    [
        ([], [(5,)]),
        ([(5,)], []),
        ([(5,), (5,)], [(5,)]),  # equal after tokenisation
        ([()], [()]),
        ([(5, SEP)], [(5, SEP)]),
        ([(5, END)], [(5, END)]),
    ],
)
def test_nonsense_is_refused(labels: list[Label], gold: list[Label]) -> None:
    with pytest.raises(ValueError, match="label"):
        target_sequence(labels, gold, SEP, END)


def brute_force(labels: list[Label], gold: set[Label]) -> tuple[list[int], list[set[int]]]:
    """Every position from scratch, from the tokens before it: which labels were closed, what is being spelt."""
    tokens = [token for place, lab in enumerate(labels) for token in (*lab, END if place == len(labels) - 1 else SEP)]
    valid = []
    for t in range(len(tokens)):
        closed: list[Label] = []
        spelt: Label = ()
        for token in tokens[:t]:
            if token in (SEP, END):
                closed.append(spelt)
                spelt = ()
            else:
                spelt = (*spelt, token)
        missing = [lab for lab in gold if lab not in closed]
        after = [lab[len(spelt) :] for lab in missing if lab[: len(spelt)] == spelt]
        if spelt == ():
            right = {rest[0] for rest in after} if after else {END}
        elif after:
            right = {rest[0] for rest in after if rest}
            if () in after:
                right.add(SEP if len(missing) > 1 else END)
        else:
            rest = labels[len(closed)][len(spelt) :]
            right = {rest[0]} if rest else {SEP if missing else END}
        valid.append(right)
    return tokens, valid


tokens_ = st.integers(2, 4)  # three words: nearly every label shares a prefix with another
label_sets = st.lists(st.lists(tokens_, min_size=1, max_size=4).map(tuple), min_size=1, max_size=8, unique=True)


@given(label_sets, st.data())
@settings(max_examples=500)
def test_equals_the_brute_force_twin(labels: list[Label], data: st.DataObject) -> None:
    gold = set(data.draw(st.lists(st.sampled_from(labels), min_size=1, unique=True)))
    cut = data.draw(st.sampled_from([0, 0, 1]))
    kept = labels[: len(labels) - cut] or labels
    assert target_sequence(kept, gold, SEP, END) == brute_force(kept, gold)


@given(label_sets, st.data())
def test_without_mined_labels_what_is_read_is_always_right(labels: list[Label], data: st.DataObject) -> None:
    order = data.draw(st.permutations(labels))
    tokens, valid = target_sequence(order, set(labels), SEP, END)
    assert all(token in right for token, right in zip(tokens, valid, strict=True))


@given(label_sets, st.data())
def test_a_mined_label_is_never_the_right_choice(labels: list[Label], data: st.DataObject) -> None:
    gold = set(data.draw(st.lists(st.sampled_from(labels), min_size=1, unique=True)))
    tokens, valid = target_sequence(labels, gold, SEP, END)
    starts = [True] + [token == SEP for token in tokens[:-1]]
    firsts = {lab[0] for lab in gold} | {END}
    assert all(right <= firsts for start, right in zip(starts, valid, strict=True) if start)
