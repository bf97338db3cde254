"""Against a real server on this machine: up, slow, down, talking nonsense."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from merit.core.errors import ConfigError
from merit.labels.tagging.provider import KEY, URL, ProviderConfig, answered, written

Answer = Callable[[list[str]], Any]


class Server:
    """An OpenAI-compatible server that answers as it is told, and remembers what it was asked."""

    def __init__(self, answer: Answer, status: int = 200) -> None:
        self.asked: list[list[str]] = []
        self.headers: list[str | None] = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                texts = json.loads(body["messages"][1]["content"])
                server.asked.append(texts)
                server.headers.append(self.headers["Authorization"])
                content = answer(texts)
                message = {"choices": [{"message": {"content": content}}]} if isinstance(content, str) else content
                self.send_response(status)
                self.end_headers()
                with suppress(BrokenPipeError):  # the caller gave up
                    self.wfile.write(message if isinstance(message, bytes) else json.dumps(message).encode())

            def log_message(self, *_: Any) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}/v1"
        Thread(target=self.http.serve_forever, daemon=True).start()


@pytest.fixture
def serve() -> Iterator[Callable[..., Server]]:
    servers: list[Server] = []

    def start(*arguments: Any) -> Server:
        servers.append(Server(*arguments))
        return servers[-1]

    yield start
    for server in servers:
        server.http.shutdown()
        server.http.server_close()


def tagged(texts: list[str]) -> str:
    return "Sure:\n" + json.dumps([[text.split()[-1].lower(), "x" * 80, 7, "<b>bold</b>"] for text in texts])


def test_tags_are_written_clean_kept_and_never_asked_for_twice(
    serve: Callable[..., Server], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, texts = serve(tagged), ["Red Tent", "", "Blue Lamp", "Red Tent"]
    monkeypatch.setenv(KEY, "secret")
    config = ProviderConfig(url=server.url, titles=2)
    assert written(texts, 4, config, tmp_path) == [["tent"], [], ["lamp"], ["tent"]]
    assert server.asked == [["Red Tent", "Blue Lamp"]] and server.headers == ["Bearer secret"]
    assert written([*texts, "Old Chair"], 4, config, tmp_path)[-1] == ["chair"]
    assert server.asked[1:] == [["Old Chair"]]


def test_the_budget_is_kept_to_and_the_next_run_goes_on(serve: Callable[..., Server], tmp_path: Path) -> None:
    server = serve(tagged)
    config, texts = ProviderConfig(url=server.url, titles=1, max_requests=2), ["a tent", "a lamp", "a chair"]
    assert written(texts, 4, config, tmp_path) == [["tent"], ["lamp"], []]
    assert written(texts, 4, config, tmp_path)[2] == ["chair"] and len(server.asked) == 3


@pytest.mark.parametrize(
    "answer",
    [
        lambda _: "I cannot do that.",
        lambda _: "[[]",
        lambda _: '[["only one"]]',
        lambda _: {"error": "no"},
        lambda _: b"\xff not json",
    ],
)
def test_nonsense_costs_its_own_titles_only(serve: Callable[..., Server], tmp_path: Path, answer: Answer) -> None:
    server = serve(answer)
    assert written(["a tent", "a lamp"], 4, ProviderConfig(url=server.url), tmp_path) == [[], []]
    assert not list(tmp_path.rglob("*.json"))


def test_a_slow_provider_is_given_up(serve: Callable[..., Server], tmp_path: Path) -> None:
    server = serve(lambda texts: time.sleep(1.5) or tagged(texts))
    begin = time.perf_counter()
    config = ProviderConfig(url=server.url, titles=1, seconds=0.1)
    assert written(["a tent"] * 1 + ["a lamp", "a chair"], 4, config, tmp_path) == [[], [], []]
    assert time.perf_counter() - begin < 1.2 and len(server.asked) == 1


def test_a_provider_that_is_down_or_refuses(
    serve: Callable[..., Server], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    down = ProviderConfig(url="http://127.0.0.1:9/v1")
    assert written(["a tent"], 4, down, tmp_path) == [[]]
    refusing = serve(tagged, 500)
    assert written(["a tent"], 4, ProviderConfig(url=refusing.url), tmp_path) == [[]]


def test_without_an_address_nothing_is_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(URL, raising=False)
    with pytest.raises(ConfigError, match=r"tags\.provider\.url"):
        written(["a tent"], 4, ProviderConfig(), tmp_path)
    with pytest.raises(ConfigError, match="no address"):
        written(["a tent"], 4, ProviderConfig(url="file:///etc/passwd"), tmp_path)


def test_what_is_no_tag_is_left_out() -> None:
    assert answered('[["Trail Running", "trail running ", "12", "", null, "a b c d e f g"]]', 1) == [
        ["Trail Running", "trail running"]
    ]
