"""The same as an asset of Dagster: dagster dev -f deploy/dagster_update.py"""

from pathlib import Path

import dagster as dg

from merit.core import config
from merit.core.update import UpdateConfig, update


@dg.asset
def audiences() -> dict[str, object]:
    return update(config.load(UpdateConfig, Path("weekly.toml"), [])).model_dump()


nightly = dg.ScheduleDefinition(job=dg.define_asset_job("update", [audiences]), cron_schedule="30 3 * * *")
definitions = dg.Definitions(assets=[audiences], schedules=[nightly])
