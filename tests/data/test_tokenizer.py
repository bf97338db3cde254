from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from merit.core.errors import ConfigError, MissingArtifact
from merit.data import tokenizer
from merit.data.tokenizer import SPECIALS, Vocabulary
from tests.generator.small import backbone_folder

TITLES = ["Hair care set for men", "Trail running shoe, blue", "Face wash 200 ml"] * 20
WORDS = tokenizer.train(TITLES, ["Hair Care", "Trail Running", "Face"], 400)


def pieces(vocabulary: Vocabulary, text: str) -> list[str]:
    return [str(vocabulary.tokenizer.id_to_token(number)) for number in vocabulary.encode([text])[0]]


@pytest.mark.parametrize("text", ["Hair Care", "hair care", "HAIR CARE"])
def test_a_frequent_label_is_one_token(text: str) -> None:
    assert pieces(WORDS, text) == ["hair care"]


def test_a_label_is_one_token_inside_a_title_too_but_not_inside_a_word() -> None:
    assert pieces(WORDS, "Hair care set") == ["hair care", "Ġset"]
    assert "face" not in pieces(WORDS, "Facebook")


@given(st.text(max_size=60))
def test_no_text_is_unknown_and_none_becomes_a_control_token(text: str) -> None:
    for name in ("", *SPECIALS):
        ids = WORDS.encode([text + name])[0]
        assert not set(ids) & WORDS.special_ids()
        assert all(0 <= number < len(WORDS) for number in ids)


def test_every_special_token_has_an_id_of_its_own() -> None:
    assert len(WORDS.special_ids()) == len(SPECIALS)


def test_it_comes_back_from_disk_the_same(tmp_path: Path) -> None:
    WORDS.tokenizer.save(str(tmp_path / "tokenizer.json"))
    again = tokenizer.load(tmp_path / "tokenizer.json")
    texts = ["Hair care for <sep> men 💐", "trail running"]
    assert again.encode(texts) == WORDS.encode(texts)
    assert (again.sep, again.end, again.controls) == (WORDS.sep, WORDS.end, WORDS.controls)


def test_no_room_for_the_special_tokens_names_the_settings() -> None:
    with pytest.raises(ConfigError, match=r"Raise backbone\.vocabulary"):
        tokenizer.train(TITLES, ["Hair Care"] * 100, 300)


def test_a_pretrained_backbone_keeps_its_words_and_gets_our_tokens(tmp_path: Path) -> None:
    plain = Tokenizer.from_file(str(backbone_folder(tmp_path) / "tokenizer.json"))
    ours = tokenizer.pretrained(tmp_path)
    assert len(ours) == plain.get_vocab_size() + len(SPECIALS)
    assert ours.special_ids() == set(range(plain.get_vocab_size(), len(ours)))
    assert ours.encode(["trail running"]) == [plain.encode(" trail running").ids]


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory: pytest.TempPathFactory) -> Vocabulary:
    return tokenizer.pretrained(backbone_folder(tmp_path_factory.mktemp("backbone")))


@given(text=st.text(max_size=60))
def test_no_text_becomes_a_special_token_of_a_backbone(pretrained: Vocabulary, text: str) -> None:
    forbidden = pretrained.special_ids() | {pretrained.tokenizer.token_to_id("<|endoftext|>")}
    for name in ("", *SPECIALS, "<|endoftext|>"):
        assert not forbidden & set(pretrained.encode([text + name])[0])


def test_words_are_the_same_tokens_wherever_they_stand(pretrained: Vocabulary, tmp_path: Path) -> None:
    alone, behind = pretrained.encode(["trail", "running trail"])
    assert behind[-len(alone) :] == alone
    pretrained.tokenizer.save(str(tmp_path / "tokenizer.json"))
    for again in (tokenizer.load(tmp_path / "tokenizer.json"), tokenizer.pretrained(tmp_path)):  # no second space
        assert again.encode(["trail", "running trail"]) == [alone, behind]


@pytest.mark.parametrize("name", ["<cluster-0>", "<cluster-1>"])
def test_clusters_have_tokens_of_their_own_that_no_label_can_write(name: str, tmp_path: Path) -> None:
    plain = tokenizer.train(TITLES, [name], 400)
    assert plain.clusters == ()
    known = dict(plain.tokenizer.get_vocab())
    words = tokenizer.of(plain.tokenizer, clusters=3)
    assert len(set(words.clusters)) == 3 and set(words.clusters) < words.special_ids()
    assert all(words.tokenizer.get_vocab()[text] == number for text, number in known.items())
    assert not set(words.encode([f"{name} or {name}"])[0]) & words.special_ids()
    words.tokenizer.save(str(tmp_path / "tokenizer.json"))
    assert tokenizer.load(tmp_path / "tokenizer.json").clusters == words.clusters


def test_a_file_that_is_no_tokenizer_is_named(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("{}")
    for name in ("tokenizer.json", "missing.json"):
        with pytest.raises(MissingArtifact, match=name):
            tokenizer.load(tmp_path / name)
