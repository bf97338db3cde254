"""The item generator in numpy against the one in torch, which is trained and writes lists."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from merit.core.ragged import Ragged
from merit.generator.items import reader
from merit.generator.items.contents import AGES
from merit.generator.items.reader import ItemReader
from tests.generator.items import worlds
from tests.generator.items.worlds import CONFIG, ITEMS, LIVE


def twins(items: int = ITEMS) -> tuple[worlds.ItemGenerator, ItemReader]:
    """One generator in torch and in numpy. With fewer `items` in its training, the last ones are new to it."""
    generator = replace(worlds.generator(), network=worlds.network(items=items))
    weights = {name: value.numpy() for name, value in generator.network.state_dict().items()}
    return generator, ItemReader(weights, generator.catalogue, LIVE, CONFIG.positions, CONFIG.heads)


@pytest.mark.parametrize("items", [ITEMS, ITEMS - 3])
@pytest.mark.parametrize("most", [1, 4, 99])
def test_likely_labels_are_those_of_torch(items: int, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    generator, numpy_twin = twins(items)
    users = worlds.histories(40)
    now = replace(users, features=replace(users.features, trends=None))  # the end of the data
    labels, values = generator.likely(now, most)
    found = numpy_twin.likely(users.items, users.days, most)
    assert (found.labels.offsets == labels.offsets).all() and (found.labels.values == labels.values).all()
    np.testing.assert_allclose(found.values, values, atol=1e-5)
    monkeypatch.setattr(reader, "GRID", 1)  # a user at a time
    alone = numpy_twin.likely(users.items, users.days, most)
    assert (alone.labels.values == labels.values).all()
    np.testing.assert_allclose(alone.values, values, atol=1e-5)


def test_only_the_newest_items_are_read() -> None:
    _, numpy_twin = twins()
    long, days = np.arange(20) % ITEMS, np.arange(220, 20, -10)
    whole = numpy_twin.likely(Ragged.of([long.tolist()]), Ragged.of([days.tolist()]), 3)
    newest = [values[-CONFIG.positions :].tolist() for values in (long, days)]
    tail = numpy_twin.likely(*(Ragged.of([values]) for values in newest), 3)
    assert (whole.labels.values == tail.labels.values).all() and (whole.values == tail.values).all()


def test_an_age_is_in_the_same_step_as_in_torch() -> None:
    days = Ragged.of([list(range(2_000))])
    users = worlds.ItemHistories(Ragged.of([[0] * 2_000]), days, worlds.histories(1).features)
    ages = (4 * np.log(np.maximum(days.backwards().values, 1).astype(np.float32))).astype(np.int64)
    assert (users.positions().ages.numpy()[0] == np.minimum(ages, AGES - 1)).all()
