"""Tags written by a language model behind an OpenAI-compatible address, such as one on this machine.

It is asked only where `model` is among the sources and an address is given. What it answered is kept by content, so
that no title is sent twice; a provider that is down, slow or talks nonsense costs its own tags and nothing else.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from hashlib import sha256
from http.client import HTTPException
from pathlib import Path
from urllib.parse import urlparse
from urllib.request import Request, urlopen

from pydantic import Field

from merit.core import console, files
from merit.core.config import Frozen
from merit.core.errors import ConfigError
from merit.labels.names import clean

URL, KEY = "MERIT_TAGS_URL", "MERIT_TAGS_KEY"  # in the environment: the address, and the key that it wants
PATIENCE = 3  # requests that fail one after the other, before no more are sent
WORDS = 6  # of a tag: a longer one is a sentence
PROMPT = (
    "You tag products of a shop. For every product title in the JSON list, write up to {most} short interest "
    "descriptors: what a buyer is interested in, in one to four plain words each, no brands, no sizes, nothing about "
    "a person's health, religion, politics or sexuality. Answer with a JSON list only: for each title a list of "
    "texts, in the order given."
)


class ProviderConfig(Frozen):
    """Who writes tags, and how often it may be asked."""

    url: str = ""
    """Such as http://127.0.0.1:8080/v1; by default that of MERIT_TAGS_URL. A key is read from MERIT_TAGS_KEY only."""
    model: str = "default"
    max_requests: int = Field(200, ge=0)
    """Of a run. Titles beyond stay as they are; answers are kept, so that the next run goes on from there."""
    titles: int = Field(20, ge=1)
    """In one request."""
    seconds: float = Field(60, gt=0)
    """Until a request is given up."""


def address(config: ProviderConfig) -> str:
    """The address to send to; an error where there is none, or no address of the web."""
    url = (config.url or os.environ.get(URL, "")).rstrip("/")
    if urlparse(url).scheme not in ("http", "https") or not urlparse(url).netloc:
        given = f"'{url}' is no address" if url else "no address is given"
        raise ConfigError(
            f'tags.sources has "model", but {given}. Name one with --set tags.provider.url=http://HOST:PORT/v1 or '
            f'{URL}, or take "model" out of tags.sources.'
        )
    return url


def written(texts: Sequence[str], most: int, config: ProviderConfig, cache: Path) -> list[list[str]]:
    """Tags of each title; none where the provider gave none that can be read."""
    url, kept = address(config), _Kept(cache / "tags", f"{config.model}\x1f{PROMPT.format(most=most)}")
    tags = {text: kept.read(text) for text in dict.fromkeys(texts) if text}
    missing = [text for text, known in tags.items() if known is None]
    batches = [missing[at : at + config.titles] for at in range(0, len(missing), config.titles)]
    failed, unread = 0, 0
    for number, batch in enumerate(batches[: config.max_requests]):
        try:
            answers = answered(_asked(url, batch, most, config), len(batch))
            failed = 0
        except (OSError, HTTPException) as error:
            failed += 1
            if failed == PATIENCE or number == 0:
                left = sum(map(len, batches[number:]))
                console.warn(
                    f"The provider at {url} does not answer ({_reason(error)}); {left:,} titles go on without it.",
                    titles=left,
                )
                break
            continue
        except ValueError:
            unread += len(batch)
            continue
        for text, found in zip(batch, answers, strict=True):
            tags[text] = kept.write(text, found[:most])
    if unread:
        console.warn(
            f"The provider's answers about {unread:,} titles could not be read; they go on without.", titles=unread
        )
    if over := sum(map(len, batches[config.max_requests :])):
        console.warn(
            f"{over:,} titles were not sent: tags.provider.max_requests is {config.max_requests:,}.", titles=over
        )
    return [tags.get(text) or [] for text in texts]


def _asked(url: str, texts: Sequence[str], most: int, config: ProviderConfig) -> str:
    messages = [
        {"role": "system", "content": PROMPT.format(most=most)},
        {"role": "user", "content": json.dumps(list(texts), ensure_ascii=False)},
    ]
    body = {"model": config.model, "messages": messages, "temperature": 0, "seed": 7}
    headers = {"Content-Type": "application/json"}
    if key := os.environ.get(KEY):
        headers["Authorization"] = f"Bearer {key}"
    request = Request(f"{url}/chat/completions", json.dumps(body).encode(), headers)
    with urlopen(request, timeout=config.seconds) as response:
        content = json.loads(response.read(1 << 22))
    try:
        return str(content["choices"][0]["message"]["content"])
    except (KeyError, IndexError, TypeError):
        raise ValueError("not an answer of a chat") from None


def answered(content: str, count: int) -> list[list[str]]:
    """The tags of each title in an answer, clean; a ValueError where it is not one list for each."""
    match = re.search(r"\[.*\]", content, re.S)
    lists = json.loads(match[0]) if match else None
    if not isinstance(lists, list) or len(lists) != count or not all(isinstance(tags, list) for tags in lists):
        raise ValueError("not a list of tags for each title")
    return [list(dict.fromkeys(filter(None, map(_tag, tags)))) for tags in lists]


def _tag(given: object) -> str | None:
    """A tag that could be one: text with letters, and short."""
    text = clean(given) if isinstance(given, str) else ""
    fits = 0 < len(text.split()) <= WORDS and len(text) <= 60 and re.search(r"[^\W\d_]{2}", text) and "<" not in text
    return text if fits else None


def _reason(error: Exception) -> str:
    return str(getattr(error, "reason", None) or error)[:120] or type(error).__name__


class _Kept:
    """Answers on disk, by what was asked."""

    def __init__(self, folder: Path, question: str) -> None:
        self.folder, self.question = folder, question

    def read(self, text: str) -> list[str] | None:
        try:
            tags = json.loads(self._file(text).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return tags if isinstance(tags, list) and all(isinstance(tag, str) for tag in tags) else None

    def write(self, text: str, tags: list[str]) -> list[str]:
        files.write(self._file(text), json.dumps(tags, ensure_ascii=False))
        return tags

    def _file(self, text: str) -> Path:
        name = sha256(f"{self.question}\x1f{text}".encode("utf-8", "surrogatepass")).hexdigest()
        return self.folder / name[:2] / f"{name}.json"
