"""The benchmark of answers on demand: its last line, from frames to answers, on a planted shop."""

from __future__ import annotations

import json
import sys

import pytest

from benchmarks import ondemand


@pytest.mark.slow
def test_its_last_line_has_the_figures(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["ondemand", "--quick"])
    ondemand.main()
    figures = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert figures["same_as_stored"] is True and 0 < figures["quick_p50_ms"] < 1_000
    assert figures["standard_same_as_stored"] is True and 0 < figures["refresh_share"] < 1
    assert 0 < figures["standard_recall_after"] <= 1 and 0 < figures["quick_recall_before"] <= 1
    assert 0 < figures["recall_at_5"] <= figures["recall_at_10"] <= figures["recall_at_20"] <= 100
