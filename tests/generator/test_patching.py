"""Patches against pooling by hand, one position after the other; and a schedule that decides when they are read."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import merit
from merit.core import config
from merit.core.errors import ConfigError, DataError
from merit.core.pipeline import run
from merit.core.ragged import Ragged
from merit.core.seeds import stream
from merit.core.settings import RunConfig
from merit.data import tokenizer
from merit.data.corpus import read_examples, read_inputs
from merit.data.patches import Patched, Windows, cut, numbered, pool, windows_of, with_windows_of
from merit.data.prompt import PatchingConfig
from merit.data.texts import TextConfig, write_inputs, write_prompts
from merit.generator import backbone, checkpoint, patching
from merit.generator.batches import plan_batches
from merit.generator.decoding import DecodeConfig, decode
from merit.generator.model import load_generator, settings_of
from merit.generator.patching import Phase, curriculum, drawn, embed, from_the_start, in_full
from merit.generator.training import TrainConfig, loss_of, train
from merit.objective.collate import OBJECTIVES, CollateConfig, Corpus, collate
from merit.propensity.states import read_features
from merit.retrieval.explain import leave_one_out
from tests import small_run
from tests.generator import test_decoding as slow
from tests.generator import test_training
from tests.generator.small import backbone_folder
from tests.generator.test_decoding import END, SEP, VOCABULARY, assert_agrees, gpt2, llama, phi, some_labels, trie_of

SELF = OBJECTIVES["self-correction"]


def some_patched(seed: int, rows: int, longest: int = 30, window: int = 4) -> tuple[Ragged, Ragged, Patched]:
    """Token rows, the sizes of their positions (each of them a token or a window), and both as prompts."""
    rng = stream(seed, "patched")
    tokens, sizes = [], []
    for _ in range(rows):
        own = rng.integers(1, window + 1, rng.integers(1, longest // window)).tolist() if rng.random() < 0.7 else [1, 1]
        sizes.append([*own, 1])
        tokens.append(rng.integers(3, VOCABULARY, sum(own) + 1).tolist())
    return Ragged.of(tokens), Ragged.of(sizes), pool(Ragged.of(tokens), Ragged.of(sizes))


def by_hand(table: torch.Tensor, ids: list[int], windows: Windows) -> torch.Tensor:
    """(L, width): one position after the other, one token after the other."""
    positions = []
    for id_ in ids:
        if id_ >= 0:
            positions.append(table[id_])
            continue
        start, stop = windows.tokens.offsets[~id_ : ~id_ + 2]
        total = torch.zeros(table.shape[1], dtype=table.dtype)
        for place in range(start, stop):
            total = total + table[int(windows.tokens.values[place])] * float(windows.shares[place])
        positions.append(total)
    return torch.stack(positions)


class ByHand:
    """A model that reads patches without any of our code: the whole sequence at once, no cache, no batch."""

    def __init__(self, model: Any, windows: Windows) -> None:
        self.model, self.windows = model, windows

    @torch.no_grad()
    def __call__(self, tokens: torch.Tensor) -> Any:
        return self.model(inputs_embeds=self.read(tokens[0].tolist())[None])

    def read(self, ids: list[int]) -> torch.Tensor:
        return by_hand(self.model.get_input_embeddings().weight, ids, self.windows)

    def state(self, ids: list[int]) -> torch.Tensor:
        with torch.no_grad():
            return self.model.get_decoder()(inputs_embeds=self.read(ids)[None]).last_hidden_state[0, -1]


# --- windows ---------------------------------------------------------------------------------------------------------


def slow_cut(runs: list[int], windows: list[int]) -> list[list[int]]:
    return [[min(window, run - at) for at in range(0, run, window)] for run, window in zip(runs, windows, strict=True)]


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(1, 12)), max_size=12))
def test_runs_are_cut_from_the_front_and_the_rest_is_a_window_too(both: list[tuple[int, int]]) -> None:
    runs, windows = [run for run, _ in both], [window for _, window in both]
    sizes, number = cut(np.array(runs, np.int64), np.array(windows, np.int64))
    expected = slow_cut(runs, windows)
    assert sizes.tolist() == [size for run in expected for size in run]
    assert number.tolist() == [len(run) for run in expected]


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 10_000), rows=st.integers(1, 6), window=st.integers(1, 12))
def test_embeddings_are_those_pooled_by_hand(seed: int, rows: int, window: int) -> None:
    tokens, sizes, prompts = some_patched(seed, rows, 40, window)
    table = torch.nn.Embedding(VOCABULARY, 6, dtype=torch.float64)
    model: Any = SimpleNamespace(get_input_embeddings=lambda: table)
    for row in range(rows):
        ids, own = numbered(prompts[row][None].astype(np.int64), prompts.windows)
        read = embed(model, torch.from_numpy(ids), own)[0]
        at, means = 0, []
        for size in sizes[row]:
            means.append(table.weight[tokens[row][at : at + size].tolist()].mean(0))
            at += size
        assert torch.allclose(read, torch.stack(means), atol=1e-7)
        assert torch.allclose(read, by_hand(table.weight, prompts[row].tolist(), prompts.windows), atol=1e-7)


def test_shares_make_a_mean_of_means() -> None:
    shares = np.array([0.25, 0.25, 0.5, 1], np.float32)  # an item of two tokens, one of one, and a token by itself
    prompts = pool(Ragged.of([[5, 6, 7, 8]]), Ragged.of([[3, 1]]), shares)
    table = torch.nn.Embedding(9, 2)
    model: Any = SimpleNamespace(get_input_embeddings=lambda: table)
    read = embed(model, torch.from_numpy(prompts[0][None].astype(np.int64)), prompts.windows)[0]
    assert torch.allclose(read[0], (table.weight[5:7].mean(0) + table.weight[7]) / 2)
    assert torch.equal(read[1], table.weight[8])


def test_rows_may_be_chosen_split_and_continued() -> None:
    _, _, prompts = some_patched(3, 6)
    chosen = prompts.gather(np.array([4, 1]))
    assert chosen[0].tolist() == prompts[4].tolist() and chosen[1].tolist() == prompts[1].tolist()
    assert windows_of(chosen) is prompts.windows
    longer = Ragged.of([[*prompts[0].tolist(), 7]])
    assert windows_of(with_windows_of(prompts, longer)) is prompts.windows
    assert with_windows_of(longer, longer) is longer and windows_of(longer) is None
    assert prompts.some().tolist() == [any(id_ < 0 for id_ in prompts[row]) for row in range(6)]
    assert chosen.some().tolist() == prompts.some()[[4, 1]].tolist()


# --- decoding --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [llama, gpt2, phi, lambda: llama(heads=2), lambda: llama(attention="eager")])
@pytest.mark.parametrize("beams", [1, 3])
def test_decoding_is_the_slow_one_that_pools_by_hand(make: Any, beams: int) -> None:
    model, labels, (_, _, prompts) = make(), some_labels(2), some_patched(2, 5)
    how = DecodeConfig(mode="beam" if beams > 1 else "greedy", beams=beams, max_labels=4, batch_size=3)
    rows = [prompts[row] for row in range(5)]
    assert prompts.some().any() and not prompts.some().all()  # both kinds in one batch
    decoded = decode(model, rows, trie_of(labels), SEP, END, how, windows=prompts.windows)
    for place, prompt in enumerate(rows):
        assert_agrees(decoded, place, slow.slow_beam(ByHand(model, prompts.windows), prompt, labels, how, beams))


@pytest.mark.parametrize("mode", ["greedy", "sample", "beam"])
def test_states_are_those_of_the_whole_sequence_pooled_by_hand(mode: Any) -> None:
    model, labels, (_, _, prompts) = llama(5), some_labels(5), some_patched(5, 8)
    how = DecodeConfig(mode=mode, samples=4, beams=3, max_labels=5)
    rows = [prompts[row] for row in range(8)]
    decoded = decode(model, rows, trie_of(labels), SEP, END, how, seed=3, states=3, windows=prompts.windows)
    twin = ByHand(model, prompts.windows)
    for place, found in enumerate(decoded.lists()):
        for sample, ids in enumerate(found):
            read = rows[place].tolist()
            for number, label in enumerate(ids[:3]):
                assert np.allclose(decoded.states[place, sample, number], twin.state(read), atol=1e-4)
                read += [*labels[label], SEP]


@pytest.mark.parametrize("mode", ["greedy", "sample", "beam"])
def test_company_changes_nothing(mode: Any) -> None:
    """A row with patches and one without, together or alone: the same labels and states."""
    model, tree, (_, _, prompts) = llama(4), trie_of(some_labels(4)), some_patched(4, 20)
    how = DecodeConfig(mode=mode, samples=3, beams=3, max_labels=4, temperature=1.3)
    keys = np.arange(20, dtype=np.uint64)
    rows = [prompts[row] for row in range(20)]
    together = decode(model, rows, tree, SEP, END, how, 5, keys=keys, states=2, windows=prompts.windows)
    alone = how.model_copy(update={"batch_size": 1})
    again = decode(model, rows, tree, SEP, END, alone, 5, keys=keys, states=2, windows=prompts.windows)
    assert again.lists() == together.lists()
    assert np.allclose(again.states, together.states, atol=1e-4)


def test_a_patch_without_windows_is_refused() -> None:
    _, _, prompts = some_patched(2, 5)
    rows = [prompts[row] for row in range(5)]
    with pytest.raises(DataError, match="does not know"):
        decode(llama(), rows, trie_of([(3,)]), SEP, END)


# --- training --------------------------------------------------------------------------------------------------------


def world(examples: int = 64) -> tuple[Any, Corpus]:
    """The small world of the loop's tests, where two thirds of the users have an older history of seven words."""
    model, corpus = test_training.world(examples)
    words = corpus.paths.values.tolist()
    full, sizes = [], []
    for row in range(examples):
        first, *rest = corpus.prompts[row].tolist()
        older = words[: 7 if row % 3 else 0]
        full.append([first, *older, *rest])
        sizes.append([1, *([4, 3] if older else []), *([1] * len(rest))])
    return model, replace(corpus, patched=pool(Ragged.of(full), Ragged.of(sizes)))


PATCHING = PatchingConfig(window=4)
GOLDEN = {
    0.0: (0.0, False),
    0.2: (0.0, False),
    0.25: (0.0, False),
    0.3: (0.2, False),
    0.375: (0.5, False),
    0.5: (1.0, False),
    0.74: (1.0, False),
    0.75: (1.0, True),
    1.0: (1.0, True),
}


@pytest.mark.parametrize(("progress", "expected"), GOLDEN.items())
def test_the_four_phases_of_the_paper(progress: float, expected: tuple[float, bool]) -> None:
    assert curriculum(progress).patched == pytest.approx(expected[0])
    assert curriculum(progress).only is expected[1]
    assert from_the_start(progress) == Phase(1.0, False)
    assert in_full(progress) == Phase(0.0, False)


def test_an_examples_draw_is_its_own() -> None:
    examples = np.arange(2000)
    half = drawn(Phase(0.5, False), examples, epoch=3, seed=7)
    assert 900 < half.sum() < 1100
    some = np.array([1999, 5, 70])
    assert drawn(Phase(0.5, False), some, epoch=3, seed=7).tolist() == half[some].tolist()
    assert (drawn(Phase(0.7, False), examples, 3, 7) >= half).all()  # who was patched stays so as the share grows
    assert (drawn(Phase(0.5, False), examples, 4, 7) != half).any()
    assert drawn(Phase(1.0, False), examples, 3, 7).all() and not drawn(Phase(0.0, False), examples, 3, 7).any()


def test_at_last_only_patched_examples_are_read_and_no_epoch_comes_twice() -> None:
    _, corpus = world()
    config_ = TrainConfig(steps=40, batch_size=16, accumulate=2)
    plan = plan_batches(corpus, config_, 7, curriculum)
    assert corpus.patched is not None
    pooled = set(np.flatnonzero(corpus.patched.some()).tolist())
    early, late = ([plan(number) for number in numbers] for numbers in (range(60), range(60, 80)))
    assert {int(row) for _, rows in early[:4] for row in rows} == set(range(len(corpus)))  # an epoch is everybody
    assert all(set(rows.tolist()) <= pooled for _, rows in late)
    assert {int(row) for _, rows in late for row in rows} == pooled
    assert max(epoch for epoch, _ in early) < min(epoch for epoch, _ in late)
    plain = plan_batches(replace(corpus, patched=None), config_, 7, curriculum)
    assert {int(row) for number in range(60, 64) for row in plain(number)[1]} == set(range(len(corpus)))


def test_the_loss_of_a_mixed_batch_is_the_mean_of_its_examples() -> None:
    """Rows with patches and rows without do not touch each other."""
    model, corpus = world()
    how = CollateConfig()
    rows, flags = [0, 1, 2, 4, 3, 5], np.array([True, True, False, True, False, False])

    def loss(part: list[int]) -> torch.Tensor:
        batch = collate(corpus, [rows[at] for at in part], 0, SELF, how, 7, flags[part])
        return loss_of(model, batch, SELF.beta)[0]

    together = loss([0, 1, 2, 3, 4, 5])
    assert torch.allclose(together, torch.stack([loss([at]) for at in range(6)]).mean(), rtol=1e-5)
    assert not torch.allclose(loss([1]), loss_of(model, collate(corpus, [1], 0, SELF, how, 7), SELF.beta)[0])


def test_a_batch_without_patches_is_the_same_tensors() -> None:
    _, corpus = world()
    plain = collate(replace(corpus, patched=None), [0, 1, 2], 0, SELF, CollateConfig(), 7)
    for flags in (None, np.zeros(3, np.bool_), np.array([True, False, False])):  # example 0 has nothing to pool
        batch = collate(corpus, [0, 1, 2], 0, SELF, CollateConfig(), 7, flags)
        assert batch.patches is None
        for name, value in vars(plain).items():
            assert value is None or torch.equal(torch.as_tensor(getattr(batch, name)), torch.as_tensor(value)), name


def test_padding_is_what_no_example_fills() -> None:
    _, corpus = world()
    batch = collate(corpus, [0, 1], 0, OBJECTIVES["teacher-forcing"], CollateConfig(), 7, np.array([False, True]))
    prompts = [len(corpus.prompts[0]), len(corpus.patched[1])] if corpus.patched else []
    filled = sum(prompts) + len(batch.classification) - 2  # the last token of a target is not read
    assert batch.padding == pytest.approx(1 - filled / batch.input_ids.numel())


def test_gradients_reach_the_words_of_a_patch() -> None:
    model, corpus = world()
    batch = collate(corpus, [1], 0, SELF, CollateConfig(mined_per_example=0), 7, np.array([True]))
    assert batch.patches
    hidden = backbone.states(model, batch.input_ids, batch.patches)
    hidden[0, -1].sum().backward()
    table = model.get_input_embeddings().weight.grad
    assert (table[batch.patches.tokens.values].abs().sum(1) > 0).all()


def trained(folder: Path, how: PatchingConfig | None, stop: int | None = None) -> bytes:
    """Weights after a training that dies when it has saved so many checkpoints, and is then run again."""
    real, saved = checkpoint.save, iter(range(1, 100))

    def dying(file: Path, *arguments: Any) -> None:
        real(file, *arguments)
        if next(saved) == stop:
            raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkpoint, "save", dying)
        for _ in range(2):
            model, corpus = world()
            with suppress(KeyboardInterrupt):
                train(model, corpus, SELF, test_training.CONFIG, 7, folder, patching=how)
    return test_training.weights(folder)


@pytest.mark.parametrize("stop", [1, 2, 3])
def test_a_resumed_training_with_patches_ends_with_the_same_bytes(stop: int, tmp_path: Path) -> None:
    """Stopped in the second, third and last phase of the curriculum."""
    assert trained(tmp_path / "stopped", PATCHING, stop) == trained(tmp_path / "whole", PATCHING)


def test_each_schedule_is_a_training_of_its_own(tmp_path: Path) -> None:
    start = PATCHING.model_copy(update={"schedule": "from-the-start"})
    ways = {str(number): trained(tmp_path / str(number), how) for number, how in enumerate((None, PATCHING, start))}
    assert len(set(ways.values())) == 3


def test_the_log_has_tokens_and_padding(tmp_path: Path) -> None:
    model, corpus = world()
    log = test_training.Log()
    train(model, corpus, SELF, test_training.CONFIG, 7, tmp_path, log=log, patching=PATCHING)
    assert len(log.told["train/padding"]) == len(log.told["train/tokens"]) == test_training.CONFIG.steps
    assert all(0 <= share < 0.5 for share in log.told["train/padding"])


def test_examples_of_like_length_are_read_together() -> None:
    """Positions, not tokens, are what is padded."""
    rng = stream(7, "lengths")
    full, sizes = [], []
    for _ in range(1600):
        recent, older = int(rng.integers(4, 60)), int(rng.integers(0, 60))
        sizes.append([10] * older + [1] * recent)
        full.append(rng.integers(3, 200, 10 * older + recent).tolist())
    _, corpus = test_training.world(1600)
    corpus = replace(corpus, patched=pool(Ragged.of(full), Ragged.of(sizes)))
    every = np.ones(32, np.bool_)

    def padding(batches: list[Any]) -> float:
        read = [collate(corpus, rows.tolist(), 0, SELF, CollateConfig(), 7, every) for rows in batches]
        return float(np.mean([batch.padding for batch in read]))

    plan = plan_batches(corpus, TrainConfig(steps=50, batch_size=32), 7, from_the_start)
    assert padding([plan(number)[1] for number in range(20)]) < 0.05
    assert padding([rng.permutation(1600)[:32] for _ in range(20)]) > 0.3


def test_not_a_number_keeps_the_patches_too(tmp_path: Path) -> None:
    model, corpus = world()
    with torch.no_grad():
        model.get_input_embeddings().weight.fill_(float("nan"))
    start = PATCHING.model_copy(update={"schedule": "from-the-start"})
    with pytest.raises(Exception, match="not a number at step 0"):
        train(model, corpus, SELF, test_training.CONFIG, 7, tmp_path, patching=start)
    (file,) = tmp_path.glob("not-a-number-*.safetensors")
    assert b"patch_tokens" in file.read_bytes()[:2000]


def test_an_adapted_backbone_reads_patches(tmp_path: Path) -> None:
    """With LoRA the embeddings are a wrapped module: special tokens have rows of their own."""
    shape = backbone.BackboneConfig(name=str(backbone_folder(tmp_path / "backbone")), lora_rank=2)
    words = tokenizer.pretrained(tmp_path / "backbone")
    model = backbone.adapt(backbone.make(shape, words, 7), shape, words, 7)
    whole = torch.tensor([[words.controls.profile, 40, 41, 42, words.controls.answer]])
    prompts = pool(Ragged.of(whole.tolist()), Ragged.of([[1, 3, 1]]))
    read = embed(model, torch.from_numpy(prompts[0][None].astype(np.int64)), prompts.windows)
    table = model.get_input_embeddings()(whole)
    assert torch.allclose(read[0, 1], table[0, 1:4].mean(0), atol=1e-6)
    backbone.states(model, torch.from_numpy(prompts[0][None].astype(np.int64)), prompts.windows).sum().backward()
    assert any(value.grad is not None and value.grad.abs().sum() > 0 for value in model.parameters())


# --- off, and on through all stages ----------------------------------------------------------------------------------


def test_off_leaves_no_trace_in_the_settings() -> None:
    assert "patching" not in TextConfig().model_dump_json()
    assert TextConfig.model_validate_json(TextConfig().model_dump_json()) == TextConfig()
    on = TextConfig(patching=PatchingConfig())
    assert TextConfig.model_validate_json(on.model_dump_json()) == on


def test_reading_less_than_is_paid_for_is_refused() -> None:
    with pytest.raises(ConfigError, match="nothing to pool"):
        config.build(TextConfig, {"prompt": {"budget": 200}, "patching": {"full_budget": 100}})


def test_without_patches_the_model_reads_ids(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def never(*_: object) -> None:
        raise AssertionError("embeddings were made by hand")

    for module in (patching, backbone):
        monkeypatch.setattr(module, "embed", never)
    model, corpus = test_training.world()
    assert train(model, corpus, SELF, test_training.CONFIG, 7, tmp_path).step == test_training.CONFIG.steps
    assert decode(llama(), slow.some_prompts(0, 3), trie_of([(3,)]), SEP, END).counts.tolist() == [[1], [1], [1]]


@pytest.fixture(scope="module")
def settings_(tmp_path_factory: pytest.TempPathFactory) -> RunConfig:
    place = tmp_path_factory.mktemp("patched")
    values = small_run.SMALL | {
        "reads": "text",
        "source": small_run.shop(place, 160, 3),
        "out": str(place / "run"),
        "cache": str(place / "cache"),
        "text": {"prompt": {"budget": 32}, "patching": {"window": 5, "full_budget": 400}},
        "predict": {"exposure": True, "union": True, "likelihood": True},
    }
    return config.build(RunConfig, values)


@pytest.mark.slow
def test_all_stages_read_patches(settings_: RunConfig) -> None:
    made = run(settings_, until="model")
    told = made["stage-1"].manifest.summary
    assert told["patched_examples"] > 0.5
    assert told["patched_tokens"] > 1.5 * told["prompt_tokens"]
    assert told["patched_positions"] <= settings_.text.prompt.budget
    trained_, how = load_generator(made["stage-2"], made["corpus"], made["labels"]), settings_of(made["stage-2"])
    found, prompts = read_examples(made["corpus"], "test"), read_inputs(made["corpus"], "test")
    assert isinstance(prompts, Patched)
    table, known = read_features(made["corpus"], made["states"], "test")
    twin = ByHand(trained_.model, prompts.windows)
    for row in range(5):
        state = known.states.values[row, 0].astype(np.float32)
        assert np.allclose(state, twin.state(prompts[row].tolist()), atol=5e-3)  # kept in half precision
    plain = write_prompts(found.items, trained_.shop, how.text)
    days = Ragged(found.items.offsets, found.days)
    again = trained_.inputs_of(found.items, days, known)  # as histories that were not in the corpus are written
    assert isinstance(again, Patched) and np.array_equal(again.values, prompts.values)
    narrow = how.text.model_copy(update={"patching": PatchingConfig(window=1)})
    one = write_inputs(found.items, trained_.shop, narrow)
    assert np.array_equal(one.values, plain.values) and np.array_equal(one.offsets, plain.offsets)
    off = how.text.model_copy(update={"patching": None})
    assert write_inputs(found.items, trained_.shop, off).values.tobytes() == plain.values.tobytes()
    assert len(table) == len(found)
    asked = merit.load(settings_.out)
    items, days = (np.array(asked.users[name][0].to_list(), dtype=np.int32) for name in ("items", "days"))
    whole = leave_one_out(asked.artifact, made["labels"], items, days, -1)[0][0]  # evidence reads patches, too
    assert np.allclose(whole, asked._scorer.users.vectors.take(np.array([0]))[0], atol=1e-3)


def test_windows_of_one_token_are_no_patching() -> None:
    tokens, _, _ = some_patched(6, 4)
    prompts = pool(tokens, Ragged(tokens.offsets, np.ones_like(tokens.values)))
    model, tree = llama(6), trie_of(some_labels(6))
    rows = [tokens[row] for row in range(4)]
    how = DecodeConfig(max_labels=3, fixed_budget=True)
    plain = decode(model, rows, tree, SEP, END, how, states=3)
    read = decode(model, [prompts[r] for r in range(4)], tree, SEP, END, how, states=3, windows=prompts.windows)
    assert not len(prompts.windows)
    assert np.allclose(plain.states, read.states, atol=1e-5) and plain.lists() == read.lists()


def test_the_same_tokens_by_their_embeddings_have_the_same_states() -> None:
    """W = 1 in the other sense: patches of one token each, which go through the embeddings."""
    model, ids = llama(7), np.array([5, 6, 7, 8], np.int64)
    windows = Windows(Ragged.of([[6], [7]]), np.ones(2, np.float32))
    read = torch.from_numpy(np.array([[5, ~0, ~1, 8]]))
    with torch.no_grad():
        patched, plain = backbone.states(model, read, windows), backbone.states(model, torch.from_numpy(ids[None]))
    assert torch.allclose(patched, plain, atol=1e-5)
