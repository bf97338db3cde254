"""An example for every route, as it stands in the schema and on the page of the API: the question, and an answer."""

from __future__ import annotations

from typing import Any

USER = "1042"
VERSION = "5f0c1d2e3a4b5c6d-1"
REQUEST: dict[str, Any] = {
    "name": "Trail running, spring",
    "interests": [{"text": "trail running"}],
    "size": {"by": "count", "users": 20000},
    "control": {"share": 0.1, "salt": "trail-running-2027-03"},
}
DESIGN: dict[str, Any] = {
    "name": "Trail running, spring",
    "arms": {"expert": 0.5, "merit": 0.5},
    "control": "expert",
    "treatment": "merit",
    "salt": "trail-running-2027-03",
    "start": "2027-03-01",
    "days": 7,
    "minimum_effect": 0.02,
    "outcome": {"column": "bought"},
    "outlook": {"mean": 0.04, "users_per_day": 100000},
}
STATISTICS: dict[str, Any] = {
    "columns": ["bought"],
    "cells": [
        {"arm": "expert", "users": 450000, "mean": [0.0400]},
        {"arm": "merit", "users": 450000, "mean": [0.0411]},
    ],
}
JOB: dict[str, Any] = {
    "id": "20270301091500123456-9f86d081884c7d65",
    "state": "DONE",
    "reason": None,
    "created": "2027-03-01T09:15:00+00:00",
    "started": "2027-03-01T09:15:00+00:00",
    "ended": "2027-03-01T09:15:04+00:00",
    "request": REQUEST,
    "members": 20000,
    "hash": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
}
LABEL = {"number": 17, "text": "trail running", "vertical": "sports", "status": "live", "since": 1, "cluster": 4}
INTEREST = {"rank": 1, "interest": "trail running", "probability": 0.031, "vertical": "sports"}
SCORES = {"model": VERSION, "items": [{"user_id": USER, "interest": "trail running", "probability": 0.031}]}
READING = {"lift": 0.0275, "low": 0.0085, "high": 0.0468, "above_zero": 0.9978, "above_minimum": 0.777}
ANALYSIS: dict[str, Any] = {
    "design": DESIGN,
    "until": "2027-03-07",
    "verdict": "ship",
    "sentence": "Ship merit: against expert it changes “bought” by +2.75 % (95 % interval +0.85 % to +4.68 %).",
    "findings": [],
    "arms": [
        {"name": "expert", "users": 450000, "mean": 0.04, "conversions": 18000.0},
        {"name": "merit", "users": 450000, "mean": 0.0411, "conversions": 18495.0},
    ],
    "effect": 0.0271,
    "effect_sd": 0.0095,
    "estimate": READING,
    "plain": READING,
    "posterior": READING,
    "posterior_effect": 0.0271,
    "posterior_sd": 0.0095,
    "loss_of_shipping": 0.00001,
    "loss_of_keeping": 0.0275,
    "adjusted_mean": 0.0411,
    "difference": 0.0011,
    "difference_low": 0.0003,
    "difference_high": 0.0019,
    "variance_removed": 0.0,
    "balance": [],
    "imbalance": 1.0,
    "sample_ratio": 1.0,
    "detectable": 0.0204,
    "sensitivity": [{"prior": "flat", "reading": READING}],
    "doubt": 0.004,
    "segments": [],
    "segments_alike": None,
    "groups": [],
    "flow": None,
}
BIN = {"low": 0.01, "high": 0.02, "pairs": 51234, "promised": 0.0142, "true": 0.0139}
RELIABILITY: dict[str, Any] = {
    "error": 0.0004,
    "error_likely": 0.012,
    "brier": 0.0061,
    "prevalence": 0.0063,
    "pairs": 1243310,
    "bins": [BIN],
}
CALIBRATION = RELIABILITY | {"verticals": [{"vertical": "sports"} | RELIABILITY]}

ERASURE: dict[str, Any] = {"users": [USER], "reason": "request of 2027-03-01"}
ERASING: dict[str, Any] = {
    "id": "9f86d081884c7d65",
    "state": "DONE",
    "reason": None,
    "created": "2027-03-01T09:15:00+00:00",
    "started": "2027-03-01T09:15:00+00:00",
    "ended": "2027-03-01T09:15:09+00:00",
    "users": 1,
    "certificate": {
        "number": "9f86d081884c7d65",
        "began": "2027-03-01T09:15:00+00:00",
        "ended": "2027-03-01T09:15:09+00:00",
        "reason": ERASURE["reason"],
        "version": "0.2.0",
        "asked": 1,
        "found": 1,
        "artifacts": [
            {
                "path": "../runs/shop/examples",
                "kind": "examples",
                "hash": JOB["hash"],
                "rows": 412,
                "parts": {"train": 1},
                "files": [{"name": "users-00000.parquet", "rows": 412, "before": JOB["hash"], "after": JOB["hash"]}],
            }
        ],
        "exports": [],
        "models": [],
        "unlinked": [],
        "search": {"files": 97, "bytes": 1736920, "held": [], "alike": []},
        "remains": ["Source tables outside these folders. A run that reads them again brings the users back …"],
    },
}

# operation → what a request holds (None: it has no body), and what the answer looks like
EXAMPLES: dict[str, tuple[dict[str, Any] | None, Any]] = {
    "health": (None, {"status": "ok", "merit": "0.2.0"}),
    "ready": (None, {"status": "ready", "name": "shop", "version": VERSION, "label_version": 1}),
    "metrics": (None, 'merit_requests_total{method="GET",route="/v1/model",status="200"} 3.0\n'),
    "model": (
        None,
        {
            "name": "shop",
            "version": VERSION,
            "hash": "5f0c1d2e3a4b5c6d7e8f90a1b2c3d4e5f60718293a4b5c6d7e8f90a1b2c3d4e5",
            "made": "2027-02-28T22:10:03+00:00",
            "opened": "2027-03-01T09:00:00+00:00",
            "merit": "0.2.0",
            "users": 1000000,
            "labels": {"live": 2462, "retired": 0, "blocked": 148},
            "label_version": 1,
            "verticals": ["grocery", "sports"],
        },
    ),
    "key": (None, {"id": "9f86d081884c", "name": "campaign tool", "scopes": ["read", "audience"]}),
    "card": (None, {"markdown": "# Model card\n\nPropensities over 2,462 text interests …"}),
    "results": (
        None,
        {
            "figures": [
                {
                    "method": "history frequency",
                    "metric": "recall",
                    "match": "exact",
                    "budget": 10,
                    "part": "",
                    "vertical": "",
                    "rule": "matching",
                    "average": "user",
                    "value": 0.405,
                    "low": 0.384,
                    "high": 0.426,
                    "users": 505,
                    "seeds": 1,
                    "gain": 0.026,
                    "gain_low": 0.011,
                    "gain_high": 0.041,
                }
            ],
            "audiences": [],
            "calibration": CALIBRATION,
        },
    ),
    "calibration": (None, CALIBRATION),
    "labels": (None, {"total": 1, "items": [LABEL], "next": None}),
    "label": (None, LABEL),
    "label_map": (
        None,
        {
            "model": VERSION,
            "clusters": 246,
            "labels": 2462,
            "items": [
                {"cluster": 4, "labels": 12, "name": "trail running", "vertical": "sports", "x": 0.31, "y": -0.52}
            ],
        },
    ),
    "interests": (
        None,
        {
            "user_id": USER,
            "model": VERSION,
            "items": [INTEREST],
            "next": None,
        },
    ),
    "regions": (
        None,
        {
            "user_id": USER,
            "model": VERSION,
            "effective": 3.2,
            "items": [{"cluster": 4, "name": "trail running", "expected": 0.05, "interests": [INTEREST]}],
        },
    ),
    "history": (
        None,
        {
            "user_id": USER,
            "model": VERSION,
            "total": 31,
            "items": [
                {
                    "item_id": "B07",
                    "title": "Trail shoe",
                    "interests": ["trail running"],
                    "at": "2027-02-20T17:03:00.000+00:00",
                    "event": "purchase",
                }
            ],
            "next": None,
        },
    ),
    "verticals": (
        None,
        {"user_id": USER, "model": VERSION, "items": [{"vertical": "sports", "expected": 0.4}]},
    ),
    "interest": (
        {"text": "running in the mountains"},
        {
            "text": "running in the mountains",
            "label": None,
            "nearest": "trail running",
            "similarity": 0.71,
            "products": 4,
            "far": False,
            "warning": None,
        },
    ),
    "score": ({"users": [USER], "interests": ["trail running"]}, SCORES),
    "score_pairs": ({"pairs": [{"user_id": USER, "interest": "trail running"}]}, SCORES),
    "explain": (
        {"user_id": USER, "interest": "trail running", "k": 5},
        {
            "user_id": USER,
            "interest": "trail running",
            "model": VERSION,
            "items": [{"item_id": "B07", "title": "Trail shoe", "times": 2, "effect": 0.81, "probability": 0.014}],
        },
    ),
    "preview": (
        REQUEST,
        {
            "name": "Trail running, spring",
            "sentence": "20,000 of 812,331 eligible users, 18,012 of whom are contacted. 420 conversions are expected.",
            "model": VERSION,
            "members": 20000,
            "lowest": 0.012,
            "eligible": 812331,
            "interests": [
                {
                    "text": "trail running",
                    "label": 17,
                    "nearest": "trail running",
                    "similarity": 1.0,
                    "far": False,
                    "weight": 1.0,
                }
            ],
            "waterfall": [{"step": "users of the model", "removed": "", "left": "1,000,000"}],
            "forecast": {
                "users": 18012,
                "conversions": 420.1,
                "low": 341.0,
                "high": 507.0,
                "least": 420.1,
                "most": 420.1,
                "doubt": 0.08,
                "value": None,
                "value_low": None,
                "value_high": None,
                "cost": None,
            },
            "sizes": [{"percent": 1.0, "users": 8123, "lowest": 0.03, "conversions": 260.2, "gain": None}],
            "eligible_histogram": [{"low": 0.0, "high": 0.01, "users": 790000}],
            "member_histogram": [{"low": 0.01, "high": 0.1, "users": 20000}],
            "over_indexed": [{"interest": "hiking boots", "share": 0.31, "base": 0.04, "index": 7.75}],
            "separation": None,
            "notes": [],
        },
    ),
    "sample": (
        REQUEST,
        {
            "model": VERSION,
            "contacted": 18012,
            "items": [
                {
                    "user_id": USER,
                    "rank": 1,
                    "score": 0.31,
                    "interests": [{"interest": "trail running", "probability": 0.31}],
                }
            ],
        },
    ),
    "tables": (
        None,
        {"offered": True, "items": [{"name": "customers.parquet", "columns": ["user_id", "newsletter"]}]},
    ),
    "build": (REQUEST, JOB | {"state": "PENDING", "started": None, "ended": None, "members": None, "hash": None}),
    "jobs": (None, {"items": [JOB], "next": None}),
    "job": (None, JOB),
    "cancel": (None, JOB | {"state": "FAILED", "reason": "Cancelled.", "members": None, "hash": None}),
    "export": (None, '{"user_id":"1042","rank":1,"score":0.31,"arm":"treatment"}\n'),
    "design": (
        DESIGN,
        {
            "file": '{\n "name": "Trail running, spring",\n …}\n',
            "sha256": "0d9bc1d1d6a4b1a7e7a0b2f1c6f2b8e1f1a1d4b8f7a3c2e5d6b7a8c9d0e1f2a3",
            "frozen": "2027-02-20",
            "end": "2027-03-07",
            "users_needed": 1103560,
            "expected": {"users": 700000, "lift": 0.0252, "chance": 0.65, "luck": 0.1},
            "by_lift": [{"lift": 0.02, "users": 1103560, "days": 12}],
            "by_week": [{"weeks": 1, "users": 700000, "lift": 0.0252}],
        },
    ),
    "analyze": ({"design": DESIGN, "statistics": STATISTICS, "until": "2027-03-07"}, ANALYSIS),
    "analyze_table": (
        {"design": '{"name": "Trail running, spring", …}', "table": "outcomes.csv", "until": "2027-03-07"},
        ANALYSIS,
    ),
    "analyze_named": ({"design": DESIGN, "table": "outcomes.parquet", "until": "2027-03-07"}, ANALYSIS),
    "erase": (ERASURE, ERASING | {"state": "PENDING", "started": None, "ended": None, "certificate": None}),
    "erasure": (None, ERASING),
    "reload": (None, {"changed": True, "before": VERSION, "now": "77aa1d2e3a4b5c6d-2"}),
}
PROBLEM = {
    "type": "about:blank",
    "title": "Unknown user",
    "status": 404,
    "detail": "The model does not know this user.",
    "remedy": "Ask for a user with enough history at the end of the model's data, with the id as it is there.",
    "request_id": "9f86d081884c7d65",
}
