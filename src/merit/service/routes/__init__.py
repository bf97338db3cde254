"""Every route in one table: method, path, scope, and the function that answers it.

A route that is not in this table is refused whatever the key: authentication knows no other way to let one pass.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from merit.service.keys import Scope
from merit.service.routes import audiences, experiments, histories, labels, model, users

Public = Literal["public"]


@dataclass(frozen=True)
class Route:
    """A row of the table; the scope `public` needs no key, and `status` is that of a success."""

    method: Literal["GET", "POST"]
    path: str
    scope: Scope | Public
    handler: Callable[..., Any]
    status: int = 200


ROUTES: tuple[Route, ...] = (
    Route("GET", "/health", "public", model.health),
    Route("GET", "/ready", "public", model.ready),
    Route("GET", "/metrics", "read", model.metrics),
    Route("GET", "/v1/key", "read", model.key),
    Route("GET", "/v1/model", "read", model.model),
    Route("GET", "/v1/model/card", "read", model.card),
    Route("GET", "/v1/model/results", "read", model.results),
    Route("GET", "/v1/model/calibration", "read", model.calibration),
    Route("GET", "/v1/labels", "read", labels.labels),
    Route("GET", "/v1/labels/{number}", "read", labels.label),
    Route("GET", "/v1/label-map", "read", labels.label_map),
    Route("GET", "/v1/users/{user_id:path}/interests", "read", users.interests),
    Route("GET", "/v1/users/{user_id:path}/verticals", "read", users.verticals),
    Route("GET", "/v1/users/{user_id:path}/regions", "read", users.regions),
    Route("GET", "/v1/users/{user_id:path}/history", "read", users.history),
    Route("POST", "/v1/interest", "read", users.interest),
    Route("POST", "/v1/score", "read", users.score),
    Route("POST", "/v1/score-pairs", "read", users.score_pairs),
    Route("POST", "/v1/explain", "read", users.explain),
    Route("POST", "/v1/histories/interests", "read", histories.history_interests),
    Route("POST", "/v1/histories/score", "read", histories.history_scores),
    Route("GET", "/v1/tables", "audience", audiences.tables),
    Route("POST", "/v1/audience/preview", "audience", audiences.preview),
    Route("POST", "/v1/audience/sample", "export", audiences.sample),
    Route("POST", "/v1/audience/jobs", "audience", audiences.build, status=202),
    Route("GET", "/v1/audience/jobs", "audience", audiences.jobs),
    Route("GET", "/v1/audience/jobs/{number}", "audience", audiences.job),
    Route("POST", "/v1/audience/jobs/{number}/cancel", "audience", audiences.cancel),
    Route("GET", "/v1/audience/jobs/{number}/export", "export", audiences.export),
    Route("POST", "/v1/experiments/design", "read", experiments.design),
    Route("POST", "/v1/experiments/analyze", "read", experiments.analyze),
    Route("POST", "/v1/experiments/analyze-table", "read", experiments.analyze_table),
    Route("POST", "/v1/experiments/analyze-named", "audience", experiments.analyze_named),
    Route("POST", "/v1/erasures", "erase", users.erase, status=202),
    Route("GET", "/v1/erasures/{number}", "erase", users.erasure),
    Route("POST", "/v1/admin/reload", "admin", model.reload),
)
SCOPE_OF: dict[tuple[str, str], Scope | Public] = {(route.method, route.path): route.scope for route in ROUTES}
