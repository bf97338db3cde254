"""Training: a planted habit is learnt, a stopped training ends with the same weights, losses are those of a loop."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
import torch

from merit.core.ragged import Ragged
from merit.core.seeds import stream
from merit.generator.items.histories import ItemHistories
from merit.generator.items.network import ItemCandidates, ItemNetwork
from merit.generator.items.prefixes import Prefixes
from merit.generator.items.training import ItemTrainConfig, Lesson, Training, fit, item_loss, labels_loss
from tests.generator.items import worlds
from tests.generator.items.worlds import CONFIG, ITEMS, LABELS, LIVE, WORDS

USERS = 400
SHORT = ItemTrainConfig(prefixes="own", steps=12, batch_size=32, checks=3, checkpoint_every=4, history_dropout=0.0)


def habit(seed: int = 0, users: int = USERS) -> Lesson:
    """Whoever had item i last buys item i + 1."""
    rng, world = np.random.default_rng(seed), worlds.histories(users, seed)
    last = rng.integers(0, ITEMS, users)
    items, days = Ragged.of([[item] for item in last.tolist()]), Ragged.of([[20]] * users)
    bought = Ragged.of([[(item + 1) % ITEMS] for item in last.tolist()])
    carried = worlds.contents().labels
    gold = Ragged.of(
        [[c for c in carried[item[0]].tolist() if c in LIVE] for item in (bought[r] for r in range(users))]
    )
    return Lesson(ItemHistories(items, days, world.features), gold, bought, worlds.prior())


def training(config: ItemTrainConfig = SHORT) -> Training:
    torch.manual_seed(0)
    network = ItemNetwork(CONFIG, LABELS, WORDS, ITEMS)
    return Training(network, worlds.contents(), habit(), LIVE, config, seed=1)


def test_a_habit_is_learnt(tmp_path: Path) -> None:
    made = training(replace_steps(SHORT, 150))
    judged = habit(1, 200)
    fit(made, judged, tmp_path)
    among = made.candidates(judged, np.arange(200), 0)
    with torch.inference_mode():
        best = made.first(made.read(judged.histories, among))[:, 0].argmax(1).numpy()
    assert (best == judged.bought.values).mean() > 0.9
    assert made.network.share.item() > 0.05  # it is trusted


def replace_steps(config: ItemTrainConfig, steps: int) -> ItemTrainConfig:
    return config.model_copy(update={"steps": steps, "learning_rate": 5e-3, "weight_decay": 0.0})


class Stopped(Exception):
    """As good as a kill."""


def test_a_training_that_was_stopped_ends_with_the_same_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = training()
    figures = fit(whole, habit(1, 50), tmp_path / "whole")
    stopped, inner = training(), Training.loss

    def loss(self: Training, rows: np.ndarray, step: int, prefixed: bool) -> torch.Tensor:
        if step == 9:
            raise Stopped
        return inner(self, rows, step, prefixed)

    with monkeypatch.context() as patched, pytest.raises(Stopped):
        patched.setattr(Training, "loss", loss)
        fit(stopped, habit(1, 50), tmp_path / "part")
    again = training()
    assert fit(again, habit(1, 50), tmp_path / "part") == figures
    for one, other in zip(whole.network.parameters(), again.network.parameters(), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("kind", get_args(Prefixes))
def test_every_kind_of_prefix_trains(kind: Prefixes, tmp_path: Path) -> None:
    config = SHORT.model_copy(update={"prefixes": kind, "prefix_share": 1.0})
    figures = fit(training(config), habit(1, 50), tmp_path)
    assert figures["steps"] == 12 and np.isfinite(figures["validation_loss"])


def test_losses_are_those_of_a_loop() -> None:
    torch.manual_seed(3)
    among = ItemCandidates.all(worlds.contents().carries(LIVE), LIVE)
    logits, right = torch.randn(3, 2, len(LIVE)), torch.rand(3, 2, len(LIVE)) > 0.6
    wanted = [-logits[row, place].log_softmax(0)[c] for row, place, c in right.nonzero().tolist()]
    torch.testing.assert_close(labels_loss(logits, right, among), torch.stack(wanted).mean())
    items, bought = torch.randn(3, ITEMS), Ragged.of([[1, 5], [], [7]])
    wanted = [-items[row].log_softmax(0)[item] for row in range(3) for item in bought[row].tolist()]
    torch.testing.assert_close(item_loss(items, bought, among), torch.stack(wanted).mean())


def test_a_step_among_drawn_items_has_all_that_are_right() -> None:
    made = training(SHORT.model_copy(update={"items": 3, "labels": 2}))
    rows = np.arange(20)
    among = made.candidates(made.lesson, rows, 4)
    assert len(among.items) < ITEMS and np.isin(made.lesson.bought.take(rows)[0], among.items).all()
    assert np.isin(made.lesson.gold.take(rows)[0], among.labels).all()
    dense = worlds.contents().carries(LIVE).toarray()[among.items][:, np.searchsorted(LIVE, among.labels)]
    assert np.array_equal(among.carried.toarray(), dense.T)
    assert torch.isfinite(made.loss(rows, 4, prefixed=True))


def test_what_was_written_cannot_be_chosen_and_is_not_right() -> None:
    made = training(SHORT.model_copy(update={"places": 50}))
    rows = np.arange(30)
    among, histories = made.candidates(made.lesson, rows, 0), made.lesson.histories.gather(rows)
    read = made.read(histories, among)
    gold = made.gold(made.lesson, rows, among)
    logits, right = made.behind(read, torch.zeros(30, len(LIVE)), torch.zeros(30, len(LIVE)), gold, stream(0, "places"))
    assert logits.shape == right.shape == (30, 1 + CONFIG.written, len(LIVE))
    assert not (right & (logits < -1e8)).any() and (logits[:, 0] > -1e8).all()


def test_a_prior_does_not_see_its_own_fold() -> None:
    lesson = habit()
    fold = np.arange(len(lesson)) % 2
    models = [worlds.prior(seed).models[0] for seed in (1, 2)]
    both = replace(lesson.prior, models=models, fold=fold)
    rows = np.array([3, 4, 9])
    found = both.of(lesson.histories.gather(rows), rows, LIVE)
    for place, row in enumerate(rows):
        alone = replace(lesson.prior, models=[models[fold[row]]]).of(
            lesson.histories.gather(rows[[place]]), rows[:1], LIVE
        )
        torch.testing.assert_close(found[place], alone[0])
