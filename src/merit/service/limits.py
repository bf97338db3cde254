"""Limits of a request. What the schema names is a constant; what an operator may change is a setting."""

from __future__ import annotations

from pydantic import Field

from merit.core.config import Frozen

MOST_K = 1_000  # interests of a user, over all pages: nobody reads further, and a page costs as much as all before it
MOST_PAIRS = 10_000  # scored in one request
MOST_INTERESTS = 100  # different ones in one request: each phrase that is no label goes through the encoder
MOST_PAGE = 200  # rows of any page
MOST_RULES = 20  # of an audience: each reads a table
MOST_ROWS = 1_000_000  # of an uploaded table: a small Parquet file can unpack to billions
MOST_UNPACKED = 512 * 2**20  # bytes of an uploaded Parquet file once it is unpacked
MOST_CLUSTERS = 600  # on the label map: more cannot be told apart
MOST_REGIONS_OF = 200  # interests of a user, by region
MOST_SAMPLED = 20  # members shown before an audience is built: to judge it, not to take it away
MOST_ERASED = 1_000  # users in one request
MOST_TABLES = 200  # listed for rules
LONGEST_ID = 200  # characters of a user id, a name or an idempotency key


class Limits(Frozen):
    """What `merit serve --set rate=500` may change; a value out of bounds keeps the service from starting."""

    body: int = Field(10 * 2**20, ge=1_024)
    """Bytes of a request."""
    seconds: float = Field(30.0, gt=0)
    """Until an answer begins."""
    rate: float = Field(50.0, gt=0)
    """Requests a second of a key."""
    burst: int = Field(200, ge=1)
    """Requests that a key may send at once."""
    waiting: int = Field(50, ge=1)
    """Jobs of a key that wait or run."""
