"""Requests that are odd rather than large: no answer is a fault of the service, and none is slow."""

from __future__ import annotations

import base64
import json
import time
from typing import Any

import pytest

CURSORS = {
    "without a bottom": "[" * 30_000,
    "half a character": json.dumps(["\ud800", "x"]),
    "a huge number": "[" + "9" * 5_000 + ",1]",
    "no number": "[NaN,1]",
    "an object": '{"a":1,"b":2}',
}
HEADERS: dict[str, dict[str, str | bytes]] = {
    "a long key of idempotency": {"Idempotency-Key": "a" * 30_000},
    "a key of idempotency that leads out": {"Idempotency-Key": "../../x"},
    "a key that is no text": {"Authorization": b"Bearer \xff\xfe"},
    "a length below none": {"Content-Length": "-5"},
    "a packed body that is none": {"Content-Encoding": "gzip"},
    "many ranges": {"Range": "bytes=0-," + "1-," * 2_000},
}
TEXTS = {
    "spaces between letters": "g u n " * 30_000,
    "digits for letters": "sl1p5ter" * 60_000,
    "one long word": "wineglass" * 1_000,
    "scripts without spaces": "酒啤" * 30_000,
    "marks on marks": "\u202e\u0301" * 50_000,
}


@pytest.mark.parametrize("how", CURSORS)
@pytest.mark.parametrize("path", ["/v1/labels", "/v1/jobs"])
def test_no_cursor_is_a_fault(how: str, path: str, ask: Any) -> None:
    cursor = base64.urlsafe_b64encode(CURSORS[how].encode()).decode().rstrip("=")
    assert ask().get(path, params={"cursor": cursor}).status_code < 500


@pytest.mark.parametrize("how", HEADERS)
def test_no_header_is_a_fault(how: str, ask: Any, wanted: dict[str, Any]) -> None:
    assert ask().get("/v1/labels", headers=HEADERS[how]).status_code < 500
    assert ask().post("/v1/audience/preview", json=wanted, headers=HEADERS[how]).status_code < 500


@pytest.mark.parametrize("how", TEXTS)
def test_no_text_takes_long(how: str, ask: Any) -> None:
    begin = time.process_time()
    answer = ask("read").post("/v1/interest", json={"text": TEXTS[how]})
    assert answer.status_code < 500 and time.process_time() - begin < 3
