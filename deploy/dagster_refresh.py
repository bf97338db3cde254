"""The same round as assets of Dagster: dagster dev -f deploy/dagster_refresh.py"""

from pathlib import Path

import dagster as dg

import merit
from merit.campaigns.audiences import build, request
from merit.campaigns.sync import destination, sync
from merit.core import artifacts, presets


@dg.asset
def model() -> None:
    presets.run(presets.load(Path("shop.toml"), []))  # stages that are finished and unchanged are kept


@dg.asset(deps=[model])
def audience() -> None:
    build.build(merit.load("run"), request.read(Path("spring.toml")), Path("audiences/spring"))


@dg.asset(deps=[audience])
def crm() -> dict[str, int]:
    members = artifacts.load(Path("audiences/spring"), "audience")
    return sync.sync_audience(members, merit.load("run"), destination.read(Path("crm.toml"))).model_dump()


nightly = dg.ScheduleDefinition(job=dg.define_asset_job("refresh", [model, audience, crm]), cron_schedule="30 3 * * *")
definitions = dg.Definitions(assets=[model, audience, crm], schedules=[nightly])
