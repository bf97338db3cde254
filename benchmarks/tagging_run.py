"""Interests on tags that were mined or completed: what the quick preset learns from them (`benchmarks.tagging --run`)."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import polars as pl

from benchmarks.tagging import HIDDEN
from merit.baselines import frequency, linear
from merit.baselines.world import World, open_world
from merit.core import presets, seeds
