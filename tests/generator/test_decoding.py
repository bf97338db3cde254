"""The fast decoder against a slow, obvious one: one row, no cache, no trie, every token computed anew."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, PhiConfig, PhiForCausalLM

from merit.core.config import build
from merit.core.errors import ConfigError, DataError
from merit.core.ragged import Ragged
from merit.core.seeds import stable_hash, stream
from merit.data.patches import Windows
from merit.generator import kv_cache
from merit.generator.decoding import DecodeConfig, Decoded, decode
from merit.labels.token_paths import Trie, build_trie
from tests.generator import elsewhere

VOCABULARY, SEP, END = 40, 1, 2
Label = tuple[int, ...]


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Models this small only lose time waiting for a second core."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@dataclass(frozen=True)
class Row:
    """What the slow decoder found for one prompt."""

    labels: list[int]
    log_probs: list[float]
    score: float
    tokens: list[int]


def llama(seed: int = 0, heads: int = 4, attention: str = "sdpa") -> Any:
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=heads,
        initializer_range=0.4,  # peaked enough that rounding never decides
        attn_implementation=attention,
    )
    torch.manual_seed(seed)
    return LlamaForCausalLM(config).eval()


def gpt2() -> Any:
    torch.manual_seed(0)
    shape = GPT2Config(vocab_size=VOCABULARY, n_embd=32, n_layer=2, n_head=4, n_positions=256, initializer_range=0.3)
    return GPT2LMHeadModel(shape).eval()


def phi() -> Any:
    """Its head has a bias."""
    shape = PhiConfig(
        vocab_size=VOCABULARY, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4
    )
    torch.manual_seed(0)
    model = PhiForCausalLM(shape).eval()
    torch.nn.init.normal_(model.lm_head.bias)
    return model


def some_labels(seed: int, count: int = 24, letters: int = 3, longest: int = 4) -> list[Label]:
    """Few different tokens and short labels: nearly every label begins like another."""
    rng = stream(seed, "labels")
    drawn = {tuple((3 + rng.integers(letters, size=rng.integers(1, longest + 1))).tolist()) for _ in range(count)}
    return sorted(drawn)


def some_prompts(seed: int, count: int, longest: int = 12) -> list[np.ndarray]:
    rng = stream(seed, "prompts")
    return [rng.integers(3, VOCABULARY, rng.integers(1, longest + 1)).astype(np.int32) for _ in range(count)]


def trie_of(labels: list[Label]) -> Trie:
    offsets = np.concatenate([[0], np.cumsum([len(label) for label in labels])]).astype(np.int64)
    tokens = np.array([token for label in labels for token in label], np.int32)
    return build_trie(offsets, tokens, np.arange(len(labels)))


def allowed(labels: list[Label], written: list[Label], prefix: Label, least: int) -> list[int]:
    """By the definition, over all labels."""
    open_ = [label for label in labels if label not in written and label[: len(prefix)] == prefix]
    tokens = sorted({label[len(prefix)] for label in open_ if len(label) > len(prefix)})
    if not prefix:
        return tokens + ([END] if written and len(written) >= least else [])
    if prefix in open_:
        tokens += [SEP] + ([END] if len(written) + 1 >= least else [])
    return tokens


@torch.no_grad()
def distribution(model: Any, tokens: list[int], among: list[int], temperature: float = 1.0) -> dict[int, float]:
    """The log-probability of each token that is allowed."""
    logits = model(torch.tensor([tokens])).logits[0, -1]
    return dict(zip(among, (logits[among] / temperature).log_softmax(0).tolist(), strict=True))


def extend(row: Row, token: int, log_prob: float, labels: list[Label], begun: Label, running: float) -> Row:
    done = token in (SEP, END) and begun
    return Row(
        row.labels + ([labels.index(begun)] if done else []),
        row.log_probs + ([running + log_prob] if done else []),
        row.score + log_prob,
        [*row.tokens, token],
    )


def slow_beam(model: Any, prompt: Any, labels: list[Label], config: DecodeConfig, beams: int) -> list[Row]:
    """Greedy decoding is one beam. A beam: the row, the tokens of the label begun, their log-probability, done."""
    most = min(config.max_labels, len(labels))
    active: list[tuple[Row, Label, float, bool]] = [(Row([], [], 0.0, []), (), 0.0, not most)]
    while not all(done for *_, done in active):
        grown = []
        for row, begun, running, done in active:
            if done:
                grown.append((row, begun, running, done))
                continue
            written = [labels[label] for label in row.labels]
            among = allowed(labels, written, begun, config.least)
            for token, log_prob in distribution(model, [*prompt.tolist(), *row.tokens], among).items():
                after = extend(row, token, log_prob, labels, begun, running)
                closed = token in (SEP, END)
                stop = token == END or len(after.labels) == most
                grown.append((after, () if closed else (*begun, token), 0.0 if closed else running + log_prob, stop))
        active = sorted(grown, key=lambda beam: -beam[0].score)[:beams]
    return [row for row, *_ in active]


def assert_agrees(decoded: Decoded, prompt: int, rows: list[Row]) -> None:
    for sample, row in enumerate(rows):
        assert decoded.lists()[prompt][sample] == row.labels
        got = decoded.log_probs[prompt, sample, : len(row.labels)]
        assert np.allclose(got, row.log_probs, atol=2e-4)
        assert math.isclose(decoded.scores[prompt, sample], row.score, abs_tol=2e-4)


WORLDS = [
    DecodeConfig(),
    DecodeConfig(max_labels=3),
    DecodeConfig(max_labels=6, min_labels=4),
    DecodeConfig(max_labels=5, fixed_budget=True),
    DecodeConfig(max_labels=500, fixed_budget=True),
]


@pytest.mark.parametrize("config", WORLDS, ids=["free", "at most 3", "4 to 6", "exactly 5", "all of them"])
def test_greedy_is_the_slow_one(config: DecodeConfig) -> None:
    model, labels, prompts = llama(), some_labels(1), some_prompts(1, 6)
    decoded = decode(model, prompts, trie_of(labels), SEP, END, config)
    for place, prompt in enumerate(prompts):
        assert_agrees(decoded, place, slow_beam(model, prompt, labels, config, 1))


@settings(max_examples=25, deadline=None, derandomize=True)
@given(seed=st.integers(0, 10_000), letters=st.integers(1, 4), longest=st.integers(1, 5), most=st.integers(1, 8))
def test_greedy_is_the_slow_one_over_any_labels(seed: int, letters: int, longest: int, most: int) -> None:
    model, labels, prompts = llama(seed), some_labels(seed, 15, letters, longest), some_prompts(seed, 2)
    config = DecodeConfig(max_labels=most, min_labels=seed % 3, fixed_budget=seed % 2 == 0)
    decoded = decode(model, prompts, trie_of(labels), SEP, END, config)
    for place, prompt in enumerate(prompts):
        assert_agrees(decoded, place, slow_beam(model, prompt, labels, config, 1))


@pytest.mark.parametrize("make", [gpt2, phi, lambda: llama(heads=2), lambda: llama(attention="eager")])
def test_other_models_fit(make: Any) -> None:
    model, labels, prompts = make(), some_labels(2), some_prompts(2, 4)
    config = DecodeConfig(max_labels=4)
    decoded = decode(model, prompts, trie_of(labels), SEP, END, config)
    for place, prompt in enumerate(prompts):
        assert_agrees(decoded, place, slow_beam(model, prompt, labels, config, 1))


@pytest.mark.parametrize("beams", [1, 3, 8])
@pytest.mark.parametrize("labels", [some_labels(3), [(3,), (3, 4)]], ids=["many", "fewer than beams"])
def test_beam_search_is_the_slow_one(beams: int, labels: list[Label]) -> None:
    model, prompts = llama(3), some_prompts(3, 3)
    config = DecodeConfig(mode="beam", beams=beams, max_labels=3)
    decoded = decode(model, prompts, trie_of(labels), SEP, END, config)
    for place, prompt in enumerate(prompts):
        expected = slow_beam(model, prompt, labels, config, beams)
        assert_agrees(decoded, place, expected)
        assert not decoded.counts[place, len(expected) :].any()
        assert np.isneginf(decoded.scores[place, len(expected) :]).all()


@pytest.mark.parametrize("mode", ["greedy", "sample", "beam"])
def test_company_changes_nothing(mode: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Alone or with 63 others of other lengths, in any order, whatever is prefilled together."""
    model, tree, prompts = llama(4), trie_of(some_labels(4)), some_prompts(4, 64, 30)
    config = DecodeConfig(mode=mode, samples=3, beams=3, max_labels=6, temperature=1.3)
    keys = stable_hash([f"user-{place}" for place in range(64)], "test")
    together = decode(model, prompts, tree, SEP, END, config, seed=5, keys=keys, states=2)
    assert len(set(together.counts.flatten().tolist())) > 2  # rows end at different times
    monkeypatch.setattr(kv_cache, "PREFILL_TOKENS", 50)
    alone = config.model_copy(update={"batch_size": 1})
    back = np.arange(64)[::-1]
    again = decode(model, [prompts[at] for at in back], tree, SEP, END, alone, seed=5, keys=keys[back], states=2)
    assert again.lists()[::-1] == together.lists()
    assert np.allclose(again.log_probs[back], together.log_probs, atol=1e-4)
    assert np.allclose(again.states[back], together.states, atol=1e-4)


@pytest.mark.parametrize("mode", ["greedy", "sample", "beam"])
def test_states_are_those_of_the_whole_sequence(mode: Any) -> None:
    model, labels, prompts = llama(5), some_labels(5), some_prompts(5, 8)
    config = DecodeConfig(mode=mode, samples=2, beams=2, max_labels=5)
    decoded = decode(model, prompts, trie_of(labels), SEP, END, config, states=3)
    for place, found in enumerate(decoded.lists()):
        for sample, ids in enumerate(found):
            tokens = prompts[place].tolist()
            for number, label in enumerate(ids[:3]):
                with torch.no_grad():
                    state = model.model(torch.tensor([tokens])).last_hidden_state[0, -1]
                assert np.allclose(decoded.states[place, sample, number], state, atol=1e-4)
                tokens += [*labels[label], SEP]
            assert not decoded.states[place, sample, len(ids) :].any()


@pytest.mark.parametrize("mode", ["greedy", "sample", "beam"])
def test_live_labels_only_and_none_twice(mode: Any) -> None:
    labels = some_labels(6)
    live = np.arange(len(labels)) % 3 > 0
    config = DecodeConfig(mode=mode, samples=2, beams=2, max_labels=99, fixed_budget=True, temperature=3)
    decoded = decode(llama(6), some_prompts(6, 5), trie_of(labels).restrict(live), SEP, END, config)
    for found in decoded.lists():
        for ids in found:
            assert sorted(ids) == np.flatnonzero(live).tolist()  # every live label, once


def test_a_smaller_budget_is_the_beginning_of_a_larger() -> None:
    model, tree, prompts = llama(7), trie_of(some_labels(7)), some_prompts(7, 5)
    small, large = (
        decode(model, prompts, tree, SEP, END, DecodeConfig(max_labels=k, fixed_budget=True)) for k in (3, 7)
    )
    assert (small.counts == 3).all() and (large.counts == 7).all()
    assert (large.labels[:, :, :3] == small.labels).all()


def exact(model: Any, prompt: list[int], labels: list[Label], temperature: float) -> dict[int, float]:
    """The probability of each label as the first, by going through every path."""
    found: dict[int, float] = {}

    def follow(prefix: Label, log_prob: float) -> None:
        among = allowed(labels, [], prefix, 0)
        for token, more in distribution(model, [*prompt, *prefix], among, temperature).items():
            if token in (SEP, END):
                label = labels.index(prefix)
                found[label] = found.get(label, 0.0) + math.exp(log_prob + more)
            else:
                follow((*prefix, token), log_prob + more)

    follow((), 0.0)
    return found


@pytest.mark.parametrize("temperature", [1.0, 2.5])
def test_samples_have_the_distribution_of_the_model(temperature: float) -> None:
    model, labels = llama(8), [(3,), (3, 4), (3, 5), (4, 4), (4, 4, 4), (5,)]
    prompt = np.array([7, 8, 9], np.int32)
    config = DecodeConfig(mode="sample", samples=8, temperature=temperature, max_labels=1, batch_size=250)
    decoded = decode(model, [prompt] * 500, trie_of(labels), SEP, END, config, seed=1)
    seen = np.bincount(decoded.labels.flatten(), minlength=len(labels))
    expected = np.array([exact(model, prompt.tolist(), labels, temperature)[label] for label in range(len(labels))])
    assert math.isclose(expected.sum(), 1, abs_tol=1e-5)
    likely = expected * 4000 >= 5
    chi_square = (((seen - expected * 4000) ** 2) / (expected * 4000))[likely].sum()
    assert likely.sum() >= 3 and chi_square < 20.5  # the 0.1 % point at 5 degrees of freedom


def test_a_seed_is_a_run() -> None:
    model, tree, prompts = llama(9), trie_of(some_labels(9)), some_prompts(9, 6)
    config = DecodeConfig(mode="sample", samples=2, temperature=2)
    one, same, other = (decode(model, prompts, tree, SEP, END, config, seed).lists() for seed in (1, 1, 2))
    assert one == same != other
    assert any(first != second for first, second in one)


def test_nothing_to_write() -> None:
    tree = trie_of([(3,)]).restrict(np.array([False]))
    decoded = decode(llama(), some_prompts(0, 3), tree, SEP, END, DecodeConfig(fixed_budget=True), states=2)
    assert decoded.lists() == [[[]]] * 3 and decoded.states.shape == (3, 1, 2, 32)
    assert decode(llama(), [], trie_of([(3,)]), SEP, END).lists() == []


def test_training_goes_on_afterwards() -> None:
    model = llama().train()
    decode(model, some_prompts(0, 1), trie_of([(3,)]), SEP, END)
    assert model.training


def test_what_cannot_be_decoded_is_said() -> None:
    model, tree = llama(), trie_of([(3, 4)])
    with pytest.raises(DataError, match="Prompt 1 has no tokens"):
        decode(model, [np.array([3], np.int32), np.array([], np.int32)], tree, SEP, END)
    with pytest.raises(DataError, match="does not know"):
        decode(model, [np.array([VOCABULARY], np.int32)], tree, SEP, END)
    with pytest.raises(ConfigError, match="the model knows 40 tokens"):
        decode(model, some_prompts(0, 1), trie_of([(3, 77)]), SEP, END)
    with pytest.raises(ConfigError, match="SEP and END"):
        decode(model, some_prompts(0, 1), trie_of([(3, SEP)]), SEP, END)
    model.config.final_logit_softcapping = 30.0
    with pytest.raises(ConfigError, match="final_logit_softcapping"):
        decode(model, some_prompts(0, 1), tree, SEP, END)
    with pytest.raises(ConfigError, match=r"temperature.*greater than 0"):
        build(DecodeConfig, {"temperature": 0})


SPOKEN = [DecodeConfig(max_labels=4), DecodeConfig(mode="sample", samples=3), DecodeConfig(mode="beam", max_labels=3)]


@pytest.mark.parametrize("config", SPOKEN, ids=lambda config: config.mode)
@pytest.mark.parametrize("make", [llama, gpt2, phi])
def test_a_model_on_another_device_says_the_same_there(make: Any, config: DecodeConfig) -> None:
    labels, prompts = trie_of(some_labels(5)), [np.array([4, -1, 7, 9], np.int32), *some_prompts(5, 5)]
    windows = Windows(Ragged.of([[5, 6]]), np.full(2, 0.5, np.float32))
    said = decode(make(), prompts, labels, SEP, END, config, states=2, windows=windows)
    with elsewhere.moved(make()) as model:
        there = decode(model, prompts, labels, SEP, END, config, states=2, windows=windows)
    assert there.lists() == said.lists()
    assert np.array_equal(there.states, said.states)
    assert np.array_equal(there.log_probs, said.log_probs)


def test_what_was_left_behind_would_be_noticed() -> None:
    with elsewhere.moved(llama()) as model, pytest.raises(RuntimeError, match="1 tensors are elsewhere and 1 are here"):
        model(torch.tensor([[3, 4]]))
